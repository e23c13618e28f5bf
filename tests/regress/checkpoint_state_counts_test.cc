// A state.json with the right checksum and senseless numbers was believed: a negative data position
// ended the run with an internal error, 2.5 steps were taken for 2, and files outside the
// checkpoint were read.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/files.h"
#include "train/checkpoint_state.h"

namespace longstride {
namespace {

OrderedJson valid() {
  return {{"format", 1},
          {"step", 2},
          {"data_position", 4},
          {"seed", 7},
          {"numerics", to_json(NumericsRecord{64, 16, 64})},
          {"config", OrderedJson::object()},
          {"files", {{"model.safetensors", {{"bytes", 5}, {"xxh3", "0"}}}}}};
}

SavedState parse(const OrderedJson& json) {
  const std::string text = json.dump();
  return parse_state_text(text + fmt::format("{:016x}\n", checksum_of_text(text)), "step-2");
}

TEST(CheckpointStateCounts, AreReadWhereTheyMakeSense) {
  const SavedState saved = parse(valid());
  EXPECT_EQ(saved.state.step, 2);
  EXPECT_EQ(saved.state.data_position, 4);
  EXPECT_EQ(saved.state.seed, 7u);
  ASSERT_EQ(saved.files.size(), 1u);
  EXPECT_EQ(saved.files[0].bytes, 5);
}

TEST(CheckpointStateCounts, AreErrorsElsewhere) {
  const OrderedJson senseless[] = {-1, 2.5, true, nullptr, "2", 1ULL << 63, OrderedJson::object()};
  for (const char* key : {"step", "data_position"})
    for (const OrderedJson& value : senseless) {
      OrderedJson json = valid();
      json[key] = value;
      EXPECT_THROW(parse(json), Error) << json.dump();
    }
  OrderedJson json = valid();
  json["seed"] = -1;
  EXPECT_THROW(parse(json), Error);
}

TEST(CheckpointStateCounts, FilesLieBelowTheCheckpoint) {
  for (const char* name : {"/etc/passwd", "../step-1/model.safetensors", "state/../../x", ""}) {
    OrderedJson json = valid();
    json["files"][name] = {{"bytes", 1}, {"xxh3", "0"}};
    EXPECT_THROW(parse(json), Error) << name;
  }
}

}  // namespace
}  // namespace longstride
