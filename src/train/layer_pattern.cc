#include "train/layer_pattern.h"

#include <fmt/ranges.h>

#include <charconv>
#include <optional>
#include <string_view>

#include "base/error.h"

namespace longstride {
namespace {

std::optional<std::int64_t> number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::vector<std::string> words_of_layers(const std::vector<std::string>& pattern,
                                         const std::string& name, const std::string& words,
                                         std::int64_t layers) {
  std::vector<std::string> all;
  for (const std::string& entry : pattern) {
    const std::size_t star = entry.find('*');
    std::int64_t count = 1;
    if (star != std::string::npos) {
      count = number(std::string_view(entry).substr(star + 1)).value_or(0);
      if (count < 1 || count > 100'000)
        throw Error(fmt::format("{} has '{}'", name, entry),
                    fmt::format("entries are {}, with *24 for 24 layers", words));
    }
    all.insert(all.end(), static_cast<std::size_t>(count), entry.substr(0, star));
  }
  if (all.empty()) return all;
  const auto wanted = static_cast<std::size_t>(layers);
  if (all.size() > wanted || wanted % all.size() != 0)
    throw Error(fmt::format("{} [{}] has {} layers and the model {}", name,
                            fmt::join(pattern, ", "), all.size(), layers),
                fmt::format("give one entry per layer (\"{}*24\" counts as 24), or a pattern that "
                            "repeats",
                            all.front()));
  for (std::size_t i = 0; all.size() < wanted; ++i) all.emplace_back(all[i]);
  return all;
}

}  // namespace longstride
