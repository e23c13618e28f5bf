#include "model/stop_tokens.h"

#include <limits>

#include "base/error.h"
#include "model/config_fields.h"
#include "model/side_files.h"

namespace longstride {
namespace {

std::vector<std::int32_t> stop_tokens_of(const Json& json, const std::string& where) {
  constexpr const char* kKey = "eos_token_id";
  const Fields fields(json, where);
  std::vector<std::int32_t> tokens;
  if (!fields.has(kKey)) return tokens;
  const Json& value = fields.value(kKey);
  for (const Json& id : value.is_array() ? value : Json::array({value})) {
    if (!id.is_number_integer() || id < 0 || id > std::numeric_limits<std::int32_t>::max())
      fields.fail(kKey, fmt::format("must be a token's number or several, not {}", shown(value)));
    tokens.push_back(id.get<std::int32_t>());
  }
  return tokens;
}

}  // namespace

std::vector<std::int32_t> read_stop_tokens(const std::filesystem::path& directory,
                                           const ModelConfig& config) {
  const std::filesystem::path path = directory / kGenerationConfig;
  if (std::filesystem::exists(path))
    if (std::vector<std::int32_t> tokens = stop_tokens_of(read_json(path), path.string());
        !tokens.empty())
      return tokens;
  return stop_tokens_of(config.raw, (directory / "config.json").string());
}

}  // namespace longstride
