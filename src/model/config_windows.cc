#include "model/config_windows.h"

#include "base/error.h"

namespace longstride {
namespace {

constexpr std::int64_t kMostPositions = std::int64_t{1} << 62;
constexpr std::int64_t kDefaultWindow = 4096;

constexpr std::string_view kFull = "full_attention";
constexpr std::string_view kSliding = "sliding_attention";

// layer_types as a list of "does this layer slide", checked.
std::vector<bool> parse_layer_types(const Fields& fields, std::int64_t layers) {
  const Json& list = fields.value("layer_types");
  if (!list.is_array())
    fields.fail("layer_types", fmt::format("must be a list, not {}", shown(list)));
  if (static_cast<std::int64_t>(list.size()) != layers)
    fields.fail("layer_types",
                fmt::format("has {} entries, but num_hidden_layers is {}", list.size(), layers));
  std::vector<bool> sliding;
  for (const Json& item : list) {
    if (item != kFull && item != kSliding)
      fields.fail("layer_types", fmt::format("holds {}, which is not supported", shown(item)),
                  "supported are full_attention and sliding_attention");
    sliding.push_back(item == kSliding);
  }
  return sliding;
}

// Gemma 3: five layers with a window, then one without, unless layer_types says otherwise.
std::vector<std::int64_t> gemma3_windows(const Fields& fields, std::int64_t layers) {
  if (fields.mentions("sliding_window") && !fields.has("sliding_window"))
    fields.fail("sliding_window", "is null, but layers of a gemma3_text model have one",
                "compare with the config.json of the original model");
  const std::int64_t window =
                         fields.integer_or("sliding_window", kDefaultWindow, 1, kMostPositions),
                     every = fields.integer_or("sliding_window_pattern", 6, 1, kMostPositions);
  std::vector<bool> sliding;
  if (fields.has("layer_types")) sliding = parse_layer_types(fields, layers);
  std::vector<std::int64_t> windows;
  for (std::int64_t l = 0; l < layers; ++l) {
    const bool slides =
        sliding.empty() ? (l + 1) % every != 0 : sliding[static_cast<std::size_t>(l)];
    windows.push_back(slides ? window : 0);
  }
  return windows;
}

}  // namespace

std::vector<std::int64_t> parse_windows(const Fields& fields, Architecture architecture,
                                        std::int64_t layers) {
  if (architecture == Architecture::kGemma3) return gemma3_windows(fields, layers);
  const bool qwen = architecture == Architecture::kQwen2 || architecture == Architecture::kQwen3;
  const bool everywhere =  // if at all
      architecture == Architecture::kMistral || architecture == Architecture::kPhi3;
  const bool slides = architecture == Architecture::kMistral ||
                      (architecture == Architecture::kPhi3 && fields.has("sliding_window")) ||
                      (qwen && fields.boolean_or("use_sliding_window", false));
  std::int64_t window = 0;
  if (slides) {
    const bool is_null = fields.mentions("sliding_window") && !fields.has("sliding_window");
    window = is_null ? 0 : fields.integer_or("sliding_window", kDefaultWindow, 1, kMostPositions);
  }
  std::vector<std::int64_t> windows(static_cast<std::size_t>(layers), everywhere ? window : 0);
  if (qwen && !fields.has("layer_types")) {
    const std::int64_t first = fields.integer_or("max_window_layers", 28, 0, kMostPositions);
    for (std::int64_t l = first; l < layers; ++l) windows[static_cast<std::size_t>(l)] = window;
  }
  if (!fields.has("layer_types")) return windows;

  const std::vector<bool> sliding = parse_layer_types(fields, layers);
  for (std::size_t l = 0; l < sliding.size(); ++l) {
    if (qwen && sliding[l] && window == 0)
      fields.fail("layer_types",
                  fmt::format("says that layer {} slides, but there is no window", l),
                  "set use_sliding_window to true and sliding_window to a number of tokens");
    if (qwen) windows[l] = sliding[l] ? window : 0;
    if (sliding[l] != (windows[l] > 0))
      fields.fail("layer_types",
                  fmt::format("says \"{}\" of layer {}, but a {} model {}",
                              sliding[l] ? kSliding : kFull, l, name_of(architecture),
                              windows[l] > 0 ? "has its sliding_window in every layer"
                                             : "without sliding_window has none"),
                  "transformers ignores layer_types here; make it agree, or remove it");
  }
  return windows;
}

}  // namespace longstride
