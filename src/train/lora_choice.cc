#include "train/lora_choice.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "base/error.h"
#include "model/adapter_modules.h"

namespace longstride {
namespace {

// "3" or "8-15".
void add_layers(const std::string& entry, std::int64_t layers, std::set<std::int64_t>& to) {
  const char *at = entry.data(), *const end = at + entry.size();
  std::int64_t first = 0, last = 0;
  auto [rest, error] = std::from_chars(at, end, first);
  last = first;
  if (error == std::errc() && rest != end && *rest == '-') {
    const auto second = std::from_chars(rest + 1, end, last);
    rest = second.ptr, error = second.ec;
  }
  if (error != std::errc() || rest != end || first < 0 || last < first)
    throw Error(fmt::format("lora.layers: \"{}\" is no layer and no range of layers", entry),
                "write 3 or 8-15, for instance");
  if (last >= layers)
    throw Error(fmt::format("lora.layers: the model has no layer {}", last),
                fmt::format("its layers are 0 to {}", layers - 1));
  for (std::int64_t layer = first; layer <= last; ++layer) to.insert(layer);
}

std::vector<std::int64_t> layers_of(const LoraConfig& lora, const ModelConfig& model) {
  std::set<std::int64_t> layers;
  for (const std::string& entry : lora.layers) add_layers(entry, model.layers, layers);
  if (std::ssize(layers) == model.layers) layers.clear();
  return {layers.begin(), layers.end()};
}

// In the order of the table.
std::vector<std::string> targets_of(const LoraConfig& lora, const ModelConfig& model) {
  const std::span<const std::string_view> known = adapter_targets(model);
  for (const std::string& target : lora.targets)
    if (std::ranges::find(known, target) == known.end())
      throw Error(fmt::format("lora.targets: \"{}\" is no projection", target),
                  fmt::format("targets are {}", fmt::join(known, ", ")));
  std::vector<std::string> targets;
  for (const std::string_view target : known)
    if (lora.targets.empty() || std::ranges::find(lora.targets, target) != lora.targets.end())
      targets.emplace_back(target);
  return targets;
}

template <class T>
void same(const char* key, const T& asked, const T& has, const AdapterDirectory& from) {
  if (asked == has) return;
  throw Error(fmt::format("lora.{} differs from that of the adapter {}", key, from.path().string()),
              fmt::format("leave lora.{} out, or begin a new adapter without lora.path", key));
}

void check_same(const LoraConfig& lora, const ModelConfig& model, const AdapterDirectory& from) {
  const AdapterConfig& has = from.config();
  if (lora.rank) same("rank", *lora.rank, has.rank, from);
  if (lora.alpha) same("alpha", *lora.alpha, has.alpha, from);
  if (lora.rslora) same("rslora", lora.rslora, has.rslora, from);
  if (!lora.targets.empty()) same("targets", targets_of(lora, model), has.targets, from);
  if (!lora.layers.empty()) same("layers", layers_of(lora, model), has.layers, from);
  if (!lora.also_train.empty()) {
    const auto sorted = [](std::vector<std::string> names) {
      std::ranges::sort(names);
      return names;
    };
    same("also_train", sorted(lora.also_train), sorted(has.also_train), from);
  }
}

}  // namespace

AdapterConfig choose_adapter(const LoraConfig& lora, const ModelConfig& model,
                             const AdapterDirectory* from, const std::string& base) {
  AdapterConfig adapter;
  if (from != nullptr) {
    check_same(lora, model, *from);
    adapter = from->config();
  } else {
    adapter.rank = lora.rank.value();
    adapter.alpha = lora.alpha.value_or(2.0 * static_cast<double>(adapter.rank));
    adapter.rslora = lora.rslora;
    adapter.targets = targets_of(lora, model);
    adapter.layers = layers_of(lora, model);
    adapter.also_train = lora.also_train;
    adapter.tie_weights = model.tied_embeddings;
  }
  adapter.dropout = lora.dropout;
  adapter.base_model = base;
  return adapter;
}

}  // namespace longstride
