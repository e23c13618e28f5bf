#include "plan/retention_choice.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <utility>

#include "model/retained_activations.h"
#include "plan/retention_search.h"

namespace longstride {
namespace {

// Larger programs take too long: one `longstride plan` may solve twenty.
constexpr std::size_t kMostKinds = 600;

struct Tensor {
  Retained name = Retained::kInput;
  std::int64_t bytes = 0;
  double flops = 0, seconds = 0;
};

// Places, (chunk, layer), that are equal in all that matters here.
struct EqualPlaces {
  std::vector<Tensor> tensors;
  std::int64_t hidden = 0;          // bytes of each whose copies its arithmetic hides
  std::vector<std::size_t> places;  // chunk * layers + layer
};

// Pairs of a query of the chunk and a key that it sees.
double visible_pairs(const NumericsRecord& numerics, const SequenceLayout& layout,
                     std::int64_t chunk, std::int64_t layer, std::int64_t window) {
  const auto begin = static_cast<double>(layout.chunk_begin(chunk)),
             tokens = static_cast<double>(layout.chunk_size(chunk));
  if (numerics.sparse.is_sparse(layer)) {
    const auto selected = static_cast<double>(numerics.sparse.budget(layer) * layout.page_tokens);
    return tokens * (std::min(begin, selected) + tokens / 2);
  }
  const double all = tokens * (begin + tokens / 2);
  return window > 0 ? std::min(all, tokens * static_cast<double>(window)) : all;
}

class Places {
 public:
  // `lowest` is the lowest layer that is always recomputed.
  Places(const ModelConfig& config, const NumericsRecord& numerics, const SequenceLayout& layout,
         const RecomputeRates& rates, std::int64_t lowest, const HeadShare& heads)
      : config_(config),
        numerics_(numerics),
        layout_(layout),
        rates_(rates),
        lowest_(lowest),
        share_(1.0 / static_cast<double>(heads.ranks)) {
    for (int i = 0; i < kRetainedKinds; ++i)
      bytes_[static_cast<std::size_t>(i)] =
          RetainedLayout(config, numerics.compute, layout.chunk_tokens,
                         {{static_cast<Retained>(i)}}, heads)
              .bytes();
  }

  std::vector<EqualPlaces> make(std::int64_t chunks) const {
    std::vector<EqualPlaces> kinds;
    std::map<std::tuple<bool, std::int64_t, double>, std::size_t> known;
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk)
      for (std::int64_t layer = lowest_; layer < config_.layers; ++layer) {
        const double pairs = pairs_of(chunk, layer);
        const std::int64_t tokens = layout_.chunk_size(chunk);
        const auto [at, added] = known.try_emplace({layer > lowest_, tokens, pairs}, kinds.size());
        if (added) kinds.push_back(make_kind(chunk, layer));
        kinds[at->second].places.push_back(
            static_cast<std::size_t>(chunk * config_.layers + layer));
      }
    return kinds;
  }

 private:
  double pairs_of(std::int64_t chunk, std::int64_t layer) const {
    return visible_pairs(numerics_, layout_, chunk, layer,
                         config_.windows[static_cast<std::size_t>(layer)]);
  }

  EqualPlaces make_kind(std::int64_t chunk, std::int64_t layer) const {
    const auto T = static_cast<double>(layout_.chunk_size(chunk));
    const auto D = static_cast<double>(config_.hidden_size),
               F = static_cast<double>(config_.ffn_size),
               Q = static_cast<double>(config_.query_heads * config_.head_size);
    EqualPlaces kind;
    const auto add = [&](Retained name, double all, double rate) {
      const double flops = all * share_;
      kind.tensors.push_back({name, bytes_[static_cast<std::size_t>(name)], flops, flops / rate});
    };
    // With its input there, the layer before need not compute its output, and those below the
    // lowest nothing at all. That of layer 0 is looked up.
    if (layer > lowest_) add(Retained::kInput, 2 * T * F * D, rates_.products);
    if (layer == lowest_ && layer > 0) {
      const double products =
          2 * T * D * (2 * Q + 3 * F) * static_cast<double>(lowest_);  // without keys and values
      double attention = 0;
      for (std::int64_t below = 0; below < lowest_; ++below)
        attention += 4 * Q * pairs_of(chunk, below);
      add(Retained::kInput, products + attention, rates_.products);
      kind.tensors.back().seconds =
          share_ * (products / rates_.products + attention / rates_.attention);
    }
    add(Retained::kQ, 2 * T * D * Q, rates_.products);
    add(Retained::kAttention, 4 * Q * pairs_of(chunk, layer), rates_.attention);
    add(Retained::kMid, 2 * T * Q * D, rates_.products);
    add(Retained::kGate, 2 * T * D * F, rates_.products);
    add(Retained::kUp, 2 * T * D * F, rates_.products);
    // Those of the forward pass; the backward pass takes longer.
    double seconds = 0;
    for (const Tensor& tensor : kind.tensors) seconds += tensor.seconds;
    kind.hidden = static_cast<std::int64_t>(std::min(1e18, seconds * rates_.copies / 2));
    return kind;
  }

  const ModelConfig& config_;
  const NumericsRecord& numerics_;
  const SequenceLayout& layout_;
  const RecomputeRates& rates_;
  const std::int64_t lowest_;
  const double share_;  // of the arithmetic, where processes share heads
  std::array<std::int64_t, kRetainedKinds> bytes_{};
};

// One tensor of one place.
struct Item {
  std::size_t place = 0;
  const EqualPlaces* kind = nullptr;
  const Tensor* tensor = nullptr;
  double worth = 0;  // seconds a byte
};

std::vector<Item> best_first(const std::vector<EqualPlaces>& kinds) {
  std::vector<Item> items;
  for (const EqualPlaces& kind : kinds)
    for (const Tensor& tensor : kind.tensors)
      for (const std::size_t place : kind.places)
        items.push_back(
            {place, &kind, &tensor, tensor.seconds / static_cast<double>(tensor.bytes)});
  std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
    return std::tie(b.worth, a.place, a.tensor) < std::tie(a.worth, b.place, b.tensor);
  });
  return items;
}

// Were all bytes alike and copies always hidden, the best would fill the room to the last byte.
double most_seconds(const std::vector<Item>& items, const RetentionRoom& room) {
  double left = static_cast<double>(room.device) + static_cast<double>(room.host), seconds = 0;
  for (const Item& item : items) {
    const double bytes = std::min(left, static_cast<double>(item.tensor->bytes));
    seconds += bytes * item.worth;
    left -= bytes;
  }
  return seconds;
}

double longest(const std::vector<Item>& items) {
  double seconds = 0;
  for (const Item& item : items) seconds = std::max(seconds, item.tensor->seconds);
  return seconds;
}

// A choice as it grows, within the room.
class Choice {
 public:
  Choice(std::size_t places, const RetentionRoom& room) : room_(room), offloaded_bytes_(places) {
    choice_.across_episodes.resize(places);
    if (room.host > 0) choice_.offloaded.resize(places);
  }

  void add(const std::vector<EqualPlaces>& kinds, const RetentionSolution& solution) {
    for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
      auto place = kinds[kind].places.begin();
      for (const SharedChoice& shared : solution.choices[kind])
        for (std::int64_t i = 0; i < shared.places; ++i, ++place)
          for (std::size_t t = 0; t < kinds[kind].tensors.size(); ++t) {
            const Tensor& tensor = kinds[kind].tensors[t];
            if ((shared.device >> t & 1) != 0) keep(*place, tensor);
            if ((shared.host >> t & 1) != 0) offload(*place, tensor);
          }
    }
  }

  // Adds what fits, the best first.
  void fill(const std::vector<Item>& items) {
    for (const auto& [place, kind, tensor, worth] : items) {
      if (has(choice_.across_episodes, place, *tensor) || has(choice_.offloaded, place, *tensor))
        continue;
      if (stays(*tensor))
        keep(place, *tensor);
      else if (choice_.host_bytes + tensor->bytes <= room_.host &&
               offloaded_bytes_[place] + tensor->bytes <= kind->hidden)
        offload(place, *tensor);
    }
  }

  // What the device has room for need not leave it.
  void bring_back(const std::vector<Item>& items) {
    for (const auto& [place, kind, tensor, worth] : items) {
      if (!has(choice_.offloaded, place, *tensor) || !stays(*tensor)) continue;
      Retention& offloaded = choice_.offloaded[place];
      offloaded = offloaded - Retention{tensor->name};
      offloaded_bytes_[place] -= tensor->bytes;
      choice_.host_bytes -= tensor->bytes;
      choice_.saved_flops -= tensor->flops;
      choice_.saved_seconds -= tensor->seconds;
      keep(place, *tensor);
    }
  }

  RetentionChoice take() { return std::move(choice_); }

 private:
  static bool has(const std::vector<Retention>& retained, std::size_t place, const Tensor& tensor) {
    return !retained.empty() && retained[place].has(tensor.name);
  }
  bool stays(const Tensor& tensor) const { return choice_.bytes + tensor.bytes <= room_.device; }
  void keep(std::size_t place, const Tensor& tensor) {
    choice_.bytes += tensor.bytes;
    save(choice_.across_episodes[place], tensor);
  }
  void offload(std::size_t place, const Tensor& tensor) {
    choice_.host_bytes += tensor.bytes;
    offloaded_bytes_[place] += tensor.bytes;
    save(choice_.offloaded[place], tensor);
  }
  void save(Retention& retained, const Tensor& tensor) {
    retained = retained | Retention{tensor.name};
    choice_.saved_flops += tensor.flops;
    choice_.saved_seconds += tensor.seconds;
  }

  const RetentionRoom room_;
  std::vector<std::int64_t> offloaded_bytes_;  // by place
  RetentionChoice choice_;
};

std::vector<PlaceKind> as_program(const std::vector<EqualPlaces>& kinds) {
  std::vector<PlaceKind> result;
  for (const EqualPlaces& kind : kinds) {
    result.push_back({{}, kind.hidden, std::ssize(kind.places)});
    for (const Tensor& tensor : kind.tensors)
      result.back().tensors.push_back({tensor.bytes, tensor.seconds});
  }
  return result;
}

}  // namespace

std::vector<Retention> choices_within_episode(Retention most) {
  std::vector<Retention> choices = {most};
  for (const Retention less :
       {Retention::all() - Retention{Retained::kGate, Retained::kUp},
        Retention{Retained::kInput, Retained::kAttention}, Retention{Retained::kInput}})
    if (less != most && most.has(less)) choices.push_back(less);
  return choices;
}

RetentionChoice choose_retention(const ModelConfig& config, const NumericsRecord& numerics,
                                 const SequenceLayout& layout, std::int64_t keep_chunks,
                                 const RetentionRoom& room, const RecomputeRates& rates,
                                 std::int64_t first_trained_layer, const HeadShare& heads) {
  const std::int64_t chunks = std::max<std::int64_t>(0, layout.chunks() - keep_chunks),
                     lowest = std::min(first_trained_layer, config.layers - 1);
  const std::vector<EqualPlaces> kinds =
      Places(config, numerics, layout, rates, lowest, heads).make(chunks);
  const std::vector<Item> items = best_first(kinds);
  const auto places = static_cast<std::size_t>(chunks * config.layers);

  Choice greedy(places, room);
  greedy.fill(items);
  RetentionChoice best = greedy.take();
  best.most_seconds = most_seconds(items, room);
  // Without host memory, the greedy choice and the bound take the same tensors until one does not
  // fit, and the bound adds less than that one.
  if (room.host == 0 || kinds.size() > kMostKinds) return best;
  const std::vector<PlaceKind> program = as_program(kinds);
  // Rounding would lose as much as there is to gain.
  if (!can_search(program) && best.most_seconds - best.saved_seconds <= longest(items)) return best;
  const std::optional<RetentionSolution> solution =
      solve_retention(program, room, best.saved_seconds);
  if (!solution) return best;
  Choice solved(places, room);
  solved.add(kinds, *solution);
  solved.fill(items);
  solved.bring_back(items);
  solved.fill(items);
  RetentionChoice other = solved.take();
  best.most_seconds = other.most_seconds = std::min(best.most_seconds, solution->bound);
  return other.saved_seconds > best.saved_seconds ? other : best;
}

}  // namespace longstride
