// A modified checkpoint is detected and named, and never trained on.
#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

class TamperedCheckpoint : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(ended(run_.train({"--training.steps=3"}), 0)); }

  // Resuming and inspecting refuse it, and leave everything as it was.
  void expect_noticed(const std::vector<std::string>& parts) {
    const auto before = run_.contents("out");
    std::vector<std::string> all = parts;
    all.insert(all.end(), {"out/step-3 is damaged", "restore it from a copy"});
    EXPECT_TRUE(refused(run_.train({"--resume"}), all));
    EXPECT_TRUE(refused(run_.run({"inspect", "out/step-3"}), all));
    EXPECT_TRUE(refused(run_.run({"inspect", "out"}), all));
    EXPECT_TRUE(same_files(before, run_.contents("out")));
  }
  fs::path file(const std::string& name) const { return run_.path("out/step-3/" + name); }

  const RunDirectory run_;
};

TEST_F(TamperedCheckpoint, AFlippedBitInTheWeights) {
  flip_byte(file("model.safetensors"));
  expect_noticed({"model.safetensors does not match its checksum"});
}

TEST_F(TamperedCheckpoint, AFlippedBitInTheOptimizer) {
  flip_byte(file("state/optimizer.safetensors"));
  expect_noticed({"state/optimizer.safetensors does not match its checksum"});
}

TEST_F(TamperedCheckpoint, AFlippedBitInTheState) {
  flip_byte(file("state/state.json"));
  expect_noticed({"state.json does not match its checksum"});
}

TEST_F(TamperedCheckpoint, AFlippedBitInTheConfig) {
  flip_byte(file("config.json"));
  expect_noticed({"config.json does not match its checksum"});
}

TEST_F(TamperedCheckpoint, WeightsCutShort) {
  fs::resize_file(file("model.safetensors"), 100000);
  expect_noticed({"model.safetensors has 100000 bytes", "were written"});
}

TEST_F(TamperedCheckpoint, AnOptimizerCutShortByOneByte) {
  const auto bytes = fs::file_size(file("state/optimizer.safetensors"));
  fs::resize_file(file("state/optimizer.safetensors"), bytes - 1);
  expect_noticed({"state/optimizer.safetensors has", "were written"});
}

TEST_F(TamperedCheckpoint, AStateCutShort) {
  for (const std::uintmax_t bytes : {500, 10, 0}) {
    fs::resize_file(file("state/state.json"), bytes);
    expect_noticed({"state.json does not match its checksum"});
  }
}

TEST_F(TamperedCheckpoint, AMissingFile) {
  for (const std::string name :
       {"generation_config.json", "state/optimizer.safetensors", "model.safetensors"}) {
    const std::string bytes = read_text(file(name));
    fs::remove(file(name));
    expect_noticed({name + " is missing"});
    write_file_atomic(file(name), bytes);
  }
}

TEST_F(TamperedCheckpoint, AMissingState) {
  fs::remove(file("state/state.json"));
  EXPECT_TRUE(refused(run_.train({"--resume"}),
                      {"out/step-3: no state/state.json", "no checkpoint to resume from"}));
}

TEST_F(TamperedCheckpoint, TheOneBeforeIsUsed) {
  ASSERT_TRUE(ended(run_.train({"--resume"}), 0));
  flip_byte(run_.path("out/step-6/model.safetensors"));
  EXPECT_TRUE(ended(run_.train({"--resume"}), 0,
                    {"warning: checkpoint out/step-6 is damaged", "passed over",
                     "resuming after step 3", "saved out/step-6"}));
}

}  // namespace
}  // namespace longstride
