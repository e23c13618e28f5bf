// Any text as a config.json: an Error, or a model whose sizes and rotary frequencies can be used.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "model/config.h"
#include "model/rope_frequencies.h"

namespace {

void check(bool holds) {
  if (!holds) std::abort();
}

void use(const longstride::ModelConfig& config) {
  check(longstride::parameter_count(config) > 0);
  check(longstride::matrix_parameter_count(config) > 0);
  check(std::isfinite(longstride::attention_scale(config)));
  check(static_cast<std::int64_t>(config.windows.size()) == config.layers);
  check(config.query_heads % config.kv_heads == 0 && config.head_size % 2 == 0);
  // The larger ones would only take longer.
  if (config.head_size > 512) return;
  const longstride::RopeFrequencies rope = longstride::rope_frequencies(config);
  check(static_cast<std::int64_t>(rope.frequencies.size()) == config.head_size / 2);
  for (const double f : rope.frequencies) check(std::isfinite(f));
  check(std::isfinite(rope.attention_factor));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const longstride::ModelConfig config =
        longstride::parse_config(longstride::parse_json(text, "fuzz"), "fuzz");
    use(config);
    // It is written beside the weights, and read again when the run goes on.
    use(longstride::parse_config(longstride::parse_json(config.raw.dump(2), "fuzz"), "fuzz"));
  } catch (const longstride::Error&) {
  }
  return 0;
}
