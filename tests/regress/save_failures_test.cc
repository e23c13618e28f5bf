// Saves that fail on the way, and steps that are not finite, cost no earlier save.
#include <sys/mount.h>

#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;
using Names = std::set<std::string>;

// A mount point cannot be renamed over.
TEST(SaveFailures, OneOnTheWayIsAWarning) {
  const RunDirectory run, whole;
  ASSERT_TRUE(ended(whole.train(), 0));
  fs::create_directories(run.path("out/step-3"));
  const std::string at = run.path("out/step-3").string();
  if (::mount("tmpfs", at.c_str(), "tmpfs", 0, "size=64k") != 0)
    GTEST_SKIP() << "this user or container may not mount a file system";
  const ProgramResult result = run.train();
  ::umount2(at.c_str(), MNT_DETACH);
  EXPECT_TRUE(ended(result, 0, {"warning: step 3 could not be saved", "saved out/step-6"}));
  EXPECT_TRUE(same_files(whole.contents("out/step-6"), run.contents("out/step-6")));
}

// The save of step 12 would be the newest, and gives a loss that is not finite for ever.
TEST(SaveFailures, ADivergingRunKeepsTheLastGoodOne) {
  const RunDirectory run;
  ASSERT_TRUE(ended(run.train({"--training.steps=2", "--checkpoint.every=0"}), 0));
  const auto good = run.contents("out/step-2");
  for (const char* every : {"--checkpoint.every=0", "--checkpoint.every=1"}) {
    EXPECT_TRUE(ended(run.train({"--resume=out/step-2", "--optimizer.learning_rate=1e18",
                                 "--optimizer.clip_norm=0", every, "--checkpoint.keep=1"}),
                      2, {"step 4: loss ", "--resume=DIR"}));
    ASSERT_TRUE(run.names("out").contains("step-2")) << every;
    EXPECT_TRUE(same_files(good, run.contents("out/step-2")));
    ASSERT_TRUE(run.names("out").contains("step-3")) << every;
    if (std::string_view(every).ends_with("0")) {
      EXPECT_TRUE(
          ended(run.train({"--resume", "--dry-run"}), 0, {"the step after it was not finite"}));
    }
  }
  EXPECT_TRUE(ended(run.train({"--resume=out/step-2"}), 0, {"resuming after step 2", "step 6/6"}));
}

// Token 7 has an embedding of zeros, whose norm has next to no epsilon: gradients overflow in every
// sequence that is made of it.
class SkippedStep : public ::testing::Test {
 protected:
  static void prepare(const RunDirectory& run, bool with_bad_sequence) {
    const ModelConfig config = changed_preset("tiny-llama", {{"rms_norm_eps", 1e-38}});
    const std::unique_ptr<Device> device = make_cpu_device();
    ParameterSet weights(*device, config, DType::kF32, "weights");
    initialize_random(weights, config, 3);
    auto* row = static_cast<float*>(weights.model().embedding.data()) + 7 * config.hidden_size;
    std::fill_n(row, config.hidden_size, 0.0f);
    fs::create_directories(run.path("model"));
    write_model_directory(run.path("model"), config, weights);
    std::vector<std::uint32_t> tokens;
    std::vector<std::uint64_t> starts;  // a document each, so that no target is in the next one
    for (std::uint32_t sequence = 0; sequence < 6; ++sequence)
      if (sequence != 2 || with_bad_sequence) {
        starts.push_back(tokens.size());
        for (std::uint32_t t = 0; t < 256; ++t)
          tokens.push_back(sequence == 2 ? 7 : 8 + (t * (sequence + 3)) % 300);
      }
    run.files().write("starts.bin", starts);
    run.files().write("tokens.bin", tokens);
  }
  static ProgramResult train(const RunDirectory& run, std::vector<std::string> more) {
    more.insert(more.end(), {"--model.preset=", "--model.path=model", "--data.shuffle=false",
                             "--data.document_index=starts.bin", "--training.nonfinite=skip",
                             "--checkpoint.every=1", "--optimizer.weight_decay=0"});
    return run.train(more);
  }
};

// Bias correction counts updates, so a skipped step leaves no trace in the weights.
TEST_F(SkippedStep, IsAsIfItHadNotBeen) {
  const RunDirectory skipping, without, resumed;
  prepare(skipping, true);
  prepare(resumed, true);
  prepare(without, false);
  ASSERT_TRUE(ended(train(skipping, {}), 0, {"the step is skipped", "step 6/6"}));
  EXPECT_FALSE(skipping.names("out").contains("step-3")) << "no save of a step that was skipped";
  ASSERT_TRUE(ended(train(without, {"--training.steps=5"}), 0));
  EXPECT_TRUE(skipping.read("out/step-6/model.safetensors") ==
              without.read("out/step-5/model.safetensors"));
  ASSERT_TRUE(ended(train(resumed, {"--training.steps=3"}), 0));
  EXPECT_NE(resumed.read("out/step-3/state/state.json").find("\"skipped_in_a_row\": 1"),
            std::string::npos);
  ASSERT_TRUE(ended(train(resumed, {"--resume"}), 0));
  EXPECT_TRUE(same_files(skipping.contents("out/step-6"), resumed.contents("out/step-6")));
}

}  // namespace
}  // namespace longstride
