#include "model/fold_adapters.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/random.h"
#include "model/adapter_modules.h"
#include "model/host_values.h"
#include "ops/adapter.h"

namespace longstride {
namespace {

// Index of the parameter at a place in a layer; -1: there is none.
std::int64_t find(const std::vector<ParameterSpec>& specs, std::int64_t layer,
                  View LayerParameters::*place) {
  const auto found = std::ranges::find_if(specs, [&](const ParameterSpec& spec) {
    return spec.place.layer == layer && spec.place.in_layer == place;
  });
  return found == specs.end() ? -1 : found - specs.begin();
}

std::int64_t padded(std::int64_t columns) {
  return (columns + ops::kAdapterColumns - 1) / ops::kAdapterColumns * ops::kAdapterColumns;
}

// What one adapter belongs to: a projection, or all of an input whose files hold them as one.
struct Module {
  std::string_view name;
  std::span<const Projection> projections;
};

std::vector<Module> adapted_modules(const AdapterConfig& adapter, Input input, bool fused) {
  const std::span<const Projection> all = projections_of(input);
  std::vector<Module> modules;
  if (fused && all.size() > 1)
    modules.push_back({input == Input::kAttention ? "qkv_proj" : "gate_up_proj", all});
  else
    for (std::size_t i = 0; i < all.size(); ++i)
      modules.push_back({all[i].name, all.subspan(i, 1)});
  std::erase_if(modules, [&](const Module& module) {
    return std::ranges::find(adapter.targets, module.name) == adapter.targets.end();
  });
  return modules;
}

// The adapters of one input's projections: A after A, then B, then the stack of all A.
void add_to_input(std::vector<ParameterSpec>& specs, const AdapterConfig& adapter,
                  std::int64_t layer, Input input, bool fused, DType compute) {
  const std::vector<Module> adapted = adapted_modules(adapter, input, fused);
  if (adapted.empty()) return;
  const std::int64_t columns = padded(std::ssize(adapted) * adapter.rank);
  std::int64_t inputs = 0;
  std::map<const Projection*, std::int64_t> outputs;
  std::vector<ParameterSpec> tails;
  for (const Projection& projection : projections_of(input)) {
    const std::int64_t at = find(specs, layer, projection.weight);
    LS_CHECK(at >= 0, "layer {} has no {}", layer, projection.name);
    // Those without an adapter have the columns too: they read the same input.
    ParameterSpec& weight = specs[static_cast<std::size_t>(at)];
    if (is_block_format(weight.dtype))
      tails.push_back({.name = weight.name + " columns of adapters",
                       .shape = {weight.shape[0], columns},
                       .dtype = compute,
                       .trainable = false,
                       .derived = true,
                       .place = {.layer = layer, .in_layer = projection.tail}});
    else
      weight.tail = columns;
    inputs = weight.shape[1];
    outputs[&projection] = weight.shape[0];
  }
  specs.insert(specs.end(), tails.begin(), tails.end());
  const auto push = [&](std::string name, Shape made, View LayerParameters::*place) {
    specs.push_back({.name = std::move(name),
                     .shape = made,
                     .dtype = DType::kF32,
                     .adapter = AdapterSettings{adapter.scale(), adapter.dropout},
                     .place = {.layer = layer, .in_layer = place}});
  };
  for (std::size_t i = 0; i < adapted.size(); ++i) {
    push(adapter_parameter_name(layer, adapted[i].name, 'A'), {adapter.rank, inputs},
         adapted[i].projections.front().a);
    specs.back().follows = i > 0;
  }
  for (const Module& module : adapted) {
    std::int64_t all = 0, first = 0;
    for (const Projection& projection : module.projections) all += outputs[&projection];
    for (const Projection& projection : module.projections) {
      push(adapter_parameter_name(layer, projection.name, 'B'),
           {outputs[&projection], adapter.rank}, projection.b);
      if (module.projections.size() > 1)
        specs.back().part = FilePart{adapter_parameter_name(layer, module.name, 'B'), first, all};
      first += outputs[&projection];
    }
  }
  specs.push_back(
      {.name = fmt::format("layer {} adapters of input {}", layer, static_cast<int>(input)),
       .shape = {columns, inputs},
       .dtype = compute,
       .trainable = false,
       .derived = true,
       .place = {.layer = layer, .in_layer = stacked_of(input)}});
}

// The rows of an F32 parameter that is a part of a file's tensor.
void load_rows(const std::vector<float>& values, const ParameterSpec& spec, Device& device,
               const View& to) {
  LS_CHECK(to.dtype() == DType::kF32, "{} is {}", spec.name, name_of(to.dtype()));
  device.copy_from_host(to.data(), values.data() + spec.part->first * spec.shape[1], to.bytes());
}

// A head of its own, which begins as the embedding.
void untie(std::vector<ParameterSpec>& specs) {
  const auto embedding =
      std::ranges::find_if(specs, [](const ParameterSpec& spec) { return spec.place.is_head_too; });
  LS_CHECK(embedding != specs.end(), "{} parameters, and no tied embedding", specs.size());
  embedding->place.is_head_too = false;
  ParameterSpec head = *embedding;
  head.name = "lm_head.weight";
  head.source = embedding->name;
  head.place = {.at_top = &ModelParameters::head};
  specs.push_back(std::move(head));
}

}  // namespace

void add_adapters(std::vector<ParameterSpec>& specs, const AdapterConfig& adapter,
                  const ModelConfig& config, DType compute) {
  std::set<std::string> whole;
  for (const AdapterTensor& tensor : adapter_tensors(adapter, config, "lora.also_train"))
    if (tensor.part == 0) whole.insert(tensor.parameter);
  const bool trains_an_end =
      whole.contains("model.embed_tokens.weight") || whole.contains("lm_head.weight");
  if (config.tied_embeddings && trains_an_end && !adapter.tie_weights) untie(specs);
  for (ParameterSpec& spec : specs)
    spec.trainable =
        whole.contains(spec.name) || (spec.place.is_head_too && whole.contains("lm_head.weight"));
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    if (!adapter.layers.empty() && std::ranges::find(adapter.layers, layer) == adapter.layers.end())
      continue;
    for (const Input input : kInputs)
      add_to_input(specs, adapter, layer, input, config.fused_files, compute);
  }
}

void fold_adapters(ParameterSet& weights) {
  const ModelParameters model = weights.model();
  Stream& stream = weights.device().stream();
  for (const LayerParameters& layer : model.layers)
    for (const Input input : kInputs) {
      const View& stacked_PI = layer.*stacked_of(input);
      if (!stacked_PI.present()) continue;
      const std::int64_t inputs = stacked_PI.dim(1);
      for (const Projection& projection : projections_of(input)) {
        const View &a_RI = layer.*projection.a, &b_OR = layer.*projection.b;
        const std::int64_t row = adapter_row(layer, projection);
        if (a_RI.present())
          ops::place_columns(stream, {.from_RC = a_RI, .to_RW = stacked_PI.rows(row, a_RI.dim(0))});
        if (!b_OR.present()) continue;
        const View& tail_OP = layer.*projection.tail;
        ops::place_columns(stream, {.from_RC = b_OR,
                                    .to_RW = tail_OP.present() ? tail_OP : layer.*projection.weight,
                                    .first = tail_OP.present() ? row : inputs + row,
                                    .scale = layer.adapter_scale});
      }
    }
}

void load_adapters(const AdapterDirectory& directory, ParameterSet& weights) {
  for (std::int64_t i = 0; i < weights.size(); ++i) {
    const ParameterSpec& spec = weights.specs()[static_cast<std::size_t>(i)];
    const AdapterTensor* tensor = directory.find(spec.file_name());
    const bool tied = spec.place.is_head_too || spec.tied_part != TiedPart::kWhole;
    if (tensor == nullptr && tied) tensor = directory.find("lm_head.weight");
    if (tensor != nullptr && spec.part)
      load_rows(directory.floats(*tensor), spec, weights.device(), weights.view(i));
    else if (tensor != nullptr)
      directory.load(*tensor, weights.device(), weights.view(i));
    else
      LS_CHECK(!spec.adapter && !spec.trainable, "{} is not in {}", spec.name,
               directory.path().string());
  }
  fold_adapters(weights);
}

void fill_folded(
    ParameterSet& weights,
    const std::function<void(ParameterSet& plain, std::span<const std::int64_t> numbers)>& fill) {
  std::map<std::int64_t, std::vector<std::int64_t>> by_layer;
  for (std::int64_t i = 0; i < weights.size(); ++i) {
    const ParameterSpec& spec = weights.specs()[static_cast<std::size_t>(i)];
    if (spec.tail > 0) by_layer[spec.place.layer].push_back(i);
  }
  Device& device = weights.device();
  for (const auto& [layer, numbers] : by_layer) {
    std::vector<ParameterSpec> plain;
    for (const std::int64_t i : numbers) {
      plain.push_back(weights.specs()[static_cast<std::size_t>(i)]);
      plain.back().tail = 0;
    }
    ParameterSet set(device, std::move(plain), "weights on their way");
    fill(set, numbers);
    for (std::size_t i = 0; i < numbers.size(); ++i)
      ops::place_columns(device.stream(), {.from_RC = set.view(static_cast<std::int64_t>(i)),
                                           .to_RW = weights.view(numbers[i])});
    device.stream().synchronize();
  }
}

void initialize_adapters(ParameterSet& weights, std::uint64_t seed) {
  if (weights.data() == nullptr) return;  // on the shapes device
  constexpr std::uint64_t kStream = 0x10a;
  std::vector<std::byte> bytes;
  for (std::int64_t i = 0; i < weights.size(); ++i) {
    const ParameterSpec& spec = weights.specs()[static_cast<std::size_t>(i)];
    if (!spec.adapter || !spec.name.ends_with(".lora_A.weight")) continue;
    // As torch's kaiming_uniform_ with a = sqrt(5).
    const double bound = 1.0 / std::sqrt(static_cast<double>(spec.shape[1]));
    Random random(seed,
                  (kStream << 32) | static_cast<std::uint64_t>(number_of(weights.specs(), i)));
    std::vector<float> values(static_cast<std::size_t>(spec.shape.elements()));
    for (float& v : values) v = static_cast<float>((2 * random.uniform() - 1) * bound);
    bytes.resize(values.size() * sizeof(float));
    store_floats(values, DType::kF32, bytes.data());
    weights.device().copy_from_host(weights.view(i).data(), bytes.data(), std::ssize(bytes));
  }
}

}  // namespace longstride
