#include "model/rope_frequencies.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace longstride {
namespace {

constexpr double kTurn = 2.0 * std::numbers::pi;

// Frequencies of long wavelengths are divided by the factor, short ones kept, those between blended
// by the number of their turns within the original context.
double llama3(const RopeConfig& rope, double frequency) {
  const double original = static_cast<double>(rope.original_positions);
  const double wavelength = kTurn / frequency;
  if (wavelength < original / rope.high_freq_factor) return frequency;
  if (wavelength > original / rope.low_freq_factor) return frequency / rope.factor;
  const double smooth = (original / wavelength - rope.low_freq_factor) /
                        (rope.high_freq_factor - rope.low_freq_factor);
  return (1.0 - smooth) * frequency / rope.factor + smooth * frequency;
}

struct YarnRamp {
  double low, high;
};

// The range of pairs in which yarn blends from keeping a frequency to dividing it.
YarnRamp yarn_ramp(const RopeConfig& rope, std::int64_t head_size) {
  const double size = static_cast<double>(head_size);
  const auto pair_that_turns = [&](double times) {
    return size * std::log(static_cast<double>(rope.original_positions) / (times * kTurn)) /
           (2.0 * std::log(rope.theta));
  };
  double low = pair_that_turns(rope.beta_fast), high = pair_that_turns(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, size - 1.0);
  if (low == high) high += 0.001;  // as transformers does, so that the ramp has a slope
  return {low, high};
}

double yarn(const RopeConfig& rope, const YarnRamp& ramp, double frequency, std::int64_t pair) {
  const double divided =
      std::clamp((static_cast<double>(pair) - ramp.low) / (ramp.high - ramp.low), 0.0, 1.0);
  return frequency / rope.factor * divided + frequency * (1.0 - divided);
}

double yarn_attention_factor(const RopeConfig& rope) {
  if (rope.attention_factor) return *rope.attention_factor;
  const auto mscale = [&](double m) {
    return rope.factor <= 1.0 ? 1.0 : 0.1 * m * std::log(rope.factor) + 1.0;
  };
  if (rope.mscale.value_or(0.0) != 0.0 && rope.mscale_all_dim.value_or(0.0) != 0.0)
    return mscale(*rope.mscale) / mscale(*rope.mscale_all_dim);
  return mscale(1.0);
}

}  // namespace

RopeFrequencies rope_frequencies(const RopeConfig& rope, std::int64_t head_size) {
  LS_CHECK(head_size > 0 && head_size % 2 == 0, "head size {}", head_size);
  const bool is_yarn = rope.type == RopeType::kYarn;
  const YarnRamp ramp = is_yarn ? yarn_ramp(rope, head_size) : YarnRamp{};
  RopeFrequencies result;
  result.attention_factor = is_yarn ? yarn_attention_factor(rope) : 1.0;
  for (std::int64_t pair = 0; pair < head_size / 2; ++pair) {
    const double f =
        1.0 / std::pow(rope.theta, static_cast<double>(2 * pair) / static_cast<double>(head_size));
    switch (rope.type) {
      case RopeType::kDefault:
        result.frequencies.push_back(f);
        break;
      case RopeType::kLinear:
        result.frequencies.push_back(f / rope.factor);
        break;
      case RopeType::kLlama3:
        result.frequencies.push_back(llama3(rope, f));
        break;
      case RopeType::kYarn:
        result.frequencies.push_back(yarn(rope, ramp, f, pair));
        break;
    }
  }
  return result;
}

RopeFrequencies rope_frequencies(const ModelConfig& config) {
  return rope_frequencies(config.rope, config.head_size);
}

}  // namespace longstride
