#include "train/checkpoint_state.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/files.h"
#include "base/json_depth.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kChecksumBytes = 17;  // 16 digits and the end of the line
constexpr std::uint64_t kMostSigned = std::numeric_limits<std::int64_t>::max();

// A checkpoint lists only files below its directory.
bool is_below(const fs::path& name) {
  return !name.empty() && name.is_relative() &&
         std::none_of(name.begin(), name.end(), [](const fs::path& part) { return part == ".."; });
}

class StateParser {
 public:
  explicit StateParser(const fs::path& directory)
      : directory_(directory), where_((directory / kStateDirectory / kStateFile).string()) {}

  SavedState parse(std::string_view text) const {
    check_json_depth(text, where_);
    try {
      return read(OrderedJson::parse(text));
    } catch (const OrderedJson::exception& e) {
      fail(e.what());
    }
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    fail_damaged(directory_, fmt::format("{}: {}", kStateFile, what));
  }

  SavedState read(const OrderedJson& json) const {
    if (const OrderedJson& format = json.at("format"); format != kCheckpointFormat)
      throw Error(fmt::format("{}: format {}, this longstride reads {}", where_, format.dump(),
                              kCheckpointFormat),
                  "use the version that wrote it");
    SavedState saved;
    TrainState& state = saved.state;
    state.step = signed_count(json, "step");
    state.updates = json.contains("updates") ? signed_count(json, "updates") : state.step;
    if (json.contains("skipped_in_a_row"))
      state.skipped_in_a_row = signed_count(json, "skipped_in_a_row");
    state.next_is_nonfinite = json.value("next_is_nonfinite", false);
    state.data_position = signed_count(json, "data_position");
    state.drops_stub = json.value("drops_stub", false);
    state.seed = count(json, "seed", std::numeric_limits<std::uint64_t>::max());
    state.numerics = numerics_from_json(Json::parse(json.at("numerics").dump()), where_);
    state.config = json.at("config");
    if (!state.config.is_object()) fail("config is no object");
    state.data_digest = json.value("data_digest", "");
    state.model_digest = json.value("model_digest", "");
    for (const auto& [name, facts] : json.at("files").items()) {
      if (!is_below(name)) fail(fmt::format("it lists a file \"{}\"", name));
      saved.files.push_back(
          {name, signed_count(facts, "bytes"), facts.at("xxh3").get<std::string>()});
    }
    return saved;
  }

  // The library would convert 1.5 and true to integers, and -1 to a large one.
  std::uint64_t count(const OrderedJson& json, const char* key, std::uint64_t most) const {
    const OrderedJson& value = json.at(key);
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > most)
      fail(fmt::format("{} is {}", key, value.dump()));
    return value.get<std::uint64_t>();
  }
  std::int64_t signed_count(const OrderedJson& json, const char* key) const {
    return static_cast<std::int64_t>(count(json, key, kMostSigned));
  }

  const fs::path& directory_;
  std::string where_;
};

}  // namespace

void fail_damaged(const fs::path& directory, const std::string& what) {
  throw Error(fmt::format("checkpoint {} is damaged: {}", directory.string(), what),
              "restore it from a copy, or remove this directory to resume from the one before it");
}

SavedState parse_state_text(std::string_view text, const fs::path& directory) {
  const std::size_t split = text.size() > kChecksumBytes ? text.size() - kChecksumBytes : 0;
  if (split == 0 ||
      fmt::format("{:016x}\n", checksum_of_text(text.substr(0, split))) != text.substr(split))
    fail_damaged(directory, fmt::format("{} does not match its checksum", kStateFile));
  return StateParser(directory).parse(text.substr(0, split));
}

}  // namespace longstride
