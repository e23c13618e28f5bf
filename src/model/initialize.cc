// Random weights, drawn on the host in pieces whose values do not depend on the number of threads.
#include <algorithm>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "base/thread_pool.h"
#include "model/fold_adapters.h"
#include "model/host_values.h"
#include "model/parameters.h"
#include "model/weight_quantizer.h"

namespace longstride {
namespace {

constexpr std::int64_t kPiece = 1 << 14;        // values of one random stream
constexpr std::int64_t kPiecesAtOnce = 1 << 8;  // bounds the staging buffer: 16 MiB of floats

// Only for random weights: a model whose weights are loaded may have any range.
void check_range(const ModelConfig& config) {
  if (config.initializer_range > 0) return;
  throw Error("initializer_range is 0, so random weights would all be 0",
              "set initializer_range in config.json to 0.02, for instance");
}

// Initial value of norms and biases, which have rank 1 (matrices have rank 2).
float constant_of(const ParameterSpec& spec, const ModelConfig& config) {
  return spec.name.ends_with(".bias") ? 0.0f : static_cast<float>(1.0 - config.norm_offset);
}

// Folded weights, adapters and what is derived from them are filled elsewhere.
bool is_plain(const ParameterSpec& spec) {
  return spec.tail == 0 && !spec.adapter && !spec.derived;
}

// Where the values go: quantized weights are drawn in F32 first.
View plain_view(const View& view, WeightQuantizer& quantizer) {
  return is_block_format(view.dtype()) ? quantizer.temporary(DType::kF32, view.shape()) : view;
}

// `number` is called with a parameter's place in the set: its number in the whole model.
template <class NumberOf>
void draw(ParameterSet& parameters, const ModelConfig& config, std::uint64_t seed,
          const NumberOf& number) {
  std::vector<std::byte> staging;
  WeightQuantizer quantizer(parameters.device());
  for (std::int64_t i = 0; i < parameters.size(); ++i) {
    const ParameterSpec& spec = parameters.specs()[static_cast<std::size_t>(i)];
    if (!is_plain(spec)) continue;
    const View view = plain_view(parameters.view(i), quantizer);
    const std::int64_t p = number(i);
    const std::int64_t elements = view.elements(), width = size_of(view.dtype());
    const std::int64_t pieces = (elements + kPiece - 1) / kPiece;
    for (std::int64_t first = 0; first < pieces; first += kPiecesAtOnce) {
      const std::int64_t begin = first * kPiece;
      const std::int64_t end = std::min(elements, (first + kPiecesAtOnce) * kPiece);
      staging.resize(static_cast<std::size_t>((end - begin) * width));
      parallel_for((end - begin + kPiece - 1) / kPiece, [&](std::int64_t piece) {
        const std::int64_t from = piece * kPiece, count = std::min(kPiece, end - begin - from);
        std::vector<float> values(static_cast<std::size_t>(count), constant_of(spec, config));
        if (spec.shape.rank() == 2) {
          // One stream per parameter and piece, so that pieces can be drawn in any order.
          Random random(seed, (static_cast<std::uint64_t>(p) << 32) |
                                  static_cast<std::uint64_t>(first + piece));
          for (float& v : values)
            v = static_cast<float>(config.initializer_range * random.normal());
        }
        store_floats(values, view.dtype(), staging.data() + from * width);
      });
      parameters.device().copy_from_host(static_cast<std::byte*>(view.data()) + begin * width,
                                         staging.data(), (end - begin) * width);
    }
    if (is_block_format(spec.dtype)) quantizer.quantize(parameters.view(i));
  }
}

void repeat(ParameterSet& parameters, const ModelConfig& config, std::uint64_t seed) {
  constexpr std::int64_t kPeriod = (1 << 21) + 11;  // odd, so that rows differ
  std::vector<float> values(kPeriod);
  Random random(seed);
  for (float& v : values) v = static_cast<float>(config.initializer_range * random.normal());
  std::vector<std::byte> staging(values.size() * sizeof(float));
  WeightQuantizer quantizer(parameters.device());
  for (std::int64_t p = 0; p < parameters.size(); ++p) {
    const View view = plain_view(parameters.view(p), quantizer);
    const ParameterSpec& spec = parameters.specs()[static_cast<std::size_t>(p)];
    if (!is_plain(spec)) continue;
    const std::vector<float> constants(spec.shape.rank() == 2 ? 0 : values.size(),
                                       constant_of(spec, config));
    const std::int64_t width = size_of(view.dtype());
    store_floats(constants.empty() ? values : constants, view.dtype(), staging.data());
    for (std::int64_t begin = 0; begin < view.elements(); begin += kPeriod)
      parameters.device().copy_from_host(static_cast<std::byte*>(view.data()) + begin * width,
                                         staging.data(),
                                         std::min(kPeriod, view.elements() - begin) * width);
    if (is_block_format(spec.dtype)) quantizer.quantize(parameters.view(p));
  }
}

}  // namespace

void initialize_random(ParameterSet& parameters, const ModelConfig& config, std::uint64_t seed) {
  if (parameters.data() == nullptr) return;  // on the shapes device
  check_range(config);
  const auto number = [&](std::int64_t i) { return number_of(parameters.specs(), i); };
  draw(parameters, config, seed, number);
  fill_folded(parameters, [&](ParameterSet& plain, std::span<const std::int64_t> numbers) {
    draw(plain, config, seed,
         [&](std::int64_t i) { return number(numbers[static_cast<std::size_t>(i)]); });
  });
}

void initialize_repeating(ParameterSet& parameters, const ModelConfig& config, std::uint64_t seed) {
  if (parameters.data() == nullptr) return;
  check_range(config);
  repeat(parameters, config, seed);
  fill_folded(parameters, [&](ParameterSet& plain, std::span<const std::int64_t>) {
    repeat(plain, config, seed);
  });
}

}  // namespace longstride
