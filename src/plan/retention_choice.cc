#include "plan/retention_choice.h"

#include <algorithm>

#include "model/retained_activations.h"

namespace longstride {
namespace {

struct Item {
  std::int64_t chunk = 0, layer = 0;
  Retained tensor = Retained::kInput;
  std::int64_t bytes = 0;
  double flops = 0, seconds = 0;
  double worth() const { return seconds / static_cast<double>(bytes); }
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

class Items {
 public:
  Items(const ModelConfig& config, const NumericsRecord& numerics, const SequenceLayout& layout,
        const RecomputeRates& rates)
      : config_(config), numerics_(numerics), layout_(layout), rates_(rates) {}

  std::vector<Item> make(std::int64_t chunks) {
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk)
      for (std::int64_t layer = 0; layer < config_.layers; ++layer) add_layer(chunk, layer);
    return std::move(items_);
  }

 private:
  void add_layer(std::int64_t chunk, std::int64_t layer) {
    const auto D = static_cast<double>(config_.hidden_size),
               F = static_cast<double>(config_.ffn_size),
               Q = static_cast<double>(config_.query_heads * config_.head_size),
               T = static_cast<double>(layout_.chunk_size(chunk));
    const auto product = [&](Retained tensor, double inner, double outer) {
      add(chunk, layer, tensor, 2 * T * inner * outer, rates_.products);
    };
    // With its input there, the layer before need not compute its output. That of layer 0 is looked
    // up.
    if (layer > 0) product(Retained::kInput, F, D);
    product(Retained::kQ, D, Q);
    add(chunk, layer, Retained::kAttention,
        4 * Q *
            visible_pairs(numerics_, layout_, chunk, layer,
                          config_.windows[static_cast<std::size_t>(layer)]),
        rates_.attention);
    product(Retained::kMid, Q, D);
    product(Retained::kGate, D, F);
    product(Retained::kUp, D, F);
  }

  void add(std::int64_t chunk, std::int64_t layer, Retained tensor, double flops, double rate) {
    const RetainedLayout alone(config_, numerics_.compute, layout_.chunk_tokens, {{tensor}});
    items_.push_back({chunk, layer, tensor, alone.bytes(), flops, flops / rate});
  }

  const ModelConfig& config_;
  const NumericsRecord& numerics_;
  const SequenceLayout& layout_;
  const RecomputeRates& rates_;
  std::vector<Item> items_;
};

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
                                 const RetentionRoom& room, const RecomputeRates& rates) {
  const std::int64_t chunks = std::max<std::int64_t>(0, layout.chunks() - keep_chunks);
  std::vector<Item> items = Items(config, numerics, layout, rates).make(chunks);
  const auto place_of = [&](const Item& item) {
    return static_cast<std::size_t>(item.chunk * config.layers + item.layer);
  };
  RetentionChoice choice;
  choice.across_episodes.resize(static_cast<std::size_t>(chunks * config.layers));
  // Of every (chunk, layer): bytes whose copies its forward pass still hides. The backward pass
  // takes longer.
  std::vector<double> hidden(choice.across_episodes.size());
  for (const Item& item : items) hidden[place_of(item)] += item.seconds * rates.copies / 2;
  if (room.host > 0) choice.offloaded.resize(choice.across_episodes.size());
  std::stable_sort(items.begin(), items.end(),
                   [](const Item& a, const Item& b) { return a.worth() > b.worth(); });
  for (const Item& item : items) {
    const std::size_t place = place_of(item);
    const bool stays = choice.bytes + item.bytes <= room.device;
    if (stays) {
      choice.bytes += item.bytes;
    } else {
      const auto bytes = static_cast<double>(item.bytes);
      if (choice.host_bytes + item.bytes > room.host || hidden[place] < bytes) continue;
      hidden[place] -= bytes;
      choice.host_bytes += item.bytes;
    }
    choice.saved_flops += item.flops;
    choice.saved_seconds += item.seconds;
    Retention& tensors = (stays ? choice.across_episodes : choice.offloaded)[place];
    tensors = tensors | Retention{item.tensor};
  }
  return choice;
}

}  // namespace longstride
