// longstride train: output and files of a run.
#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

using Names = std::set<std::string>;

TEST(Train, WritesCheckpointsAndMetrics) {
  const RunDirectory run;
  const ProgramResult result = run.train();
  ASSERT_TRUE(ended(result, 0,
                    {"step 1/6  loss 5.", "step 6/6  loss ", " tok/s", "saved out/step-3",
                     "saved out/step-6", "activations  kept: ", "workspace "}));
  EXPECT_EQ(run.names("out"), (Names{"metrics.jsonl", "step-3", "step-6"}));
  EXPECT_EQ(run.names("out/step-6"),
            (Names{"config.json", "generation_config.json", "model.safetensors", "state"}));
  EXPECT_EQ(run.names("out/step-6/state"), (Names{"optimizer.safetensors", "state.json"}));

  const std::vector<Json> lines = run.metrics();
  ASSERT_EQ(lines.size(), 6u);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i].at("step"), i + 1);
    EXPECT_EQ(lines[i].at("total_steps"), 6);
    EXPECT_EQ(lines[i].at("tokens"), 256);
    EXPECT_EQ(lines[i].at("targets"), 256);
    EXPECT_EQ(lines[i].at("learning_rate"), 1e-3);
    EXPECT_TRUE(lines[i].at("mfu").is_null());
    EXPECT_EQ(lines[i].at("trainable_parameters"), parameter_count(find_preset("tiny-llama")));
    for (const char* key : {"loss",
                            "gradient_norm",
                            "accuracy",
                            "epoch",
                            "sample",
                            "elapsed",
                            "seconds_left",
                            "seconds",
                            "seconds_forward",
                            "seconds_recompute",
                            "seconds_backward",
                            "seconds_update",
                            "tokens_per_s",
                            "tflops",
                            "bytes",
                            "bytes_weights",
                            "bytes_gradients",
                            "bytes_optimizer",
                            "bytes_kv_pages",
                            "bytes_kv_gradient_pages",
                            "bytes_workspace",
                            "bytes_other",
                            "bytes_limit",
                            "peak_rss"})
      EXPECT_TRUE(lines[i].contains(key) && lines[i][key].is_number()) << key;
    EXPECT_NEAR(lines[i].at("loss").get<double>(), 5.77, 0.3);  // log 320
  }
}

TEST(Train, TakesSettingsInBothForms) {
  const RunDirectory run;
  ASSERT_TRUE(
      ended(run.train({"--training.steps=2", "--checkpoint.every", "0", "--training.context", "128",
                       "--metrics.file=m.jsonl", "--device", "cpu"}),
            0, {"step 2/2"}));
  EXPECT_EQ(run.names("out"), (Names{"step-2"}));
  ASSERT_EQ(run.metrics("m.jsonl").size(), 2u);
  EXPECT_EQ(run.metrics("m.jsonl").back().at("tokens"), 128);
}

TEST(Train, LearnsTextByBytes) {
  const RunDirectory run;
  std::string text;
  while (text.size() < 4096) text += "to be or not to be, that is the question; ";
  run.files().write_text("play.txt", text);
  ASSERT_TRUE(ended(run.train({"--data.path=play.txt", "--data.format=text", "--training.steps=30",
                               "--checkpoint.every=0", "--optimizer.learning_rate=1e-2"}),
                    0));
  const std::vector<Json> lines = run.metrics();
  EXPECT_LT(lines.back().at("loss").get<double>(), 0.6 * lines.front().at("loss").get<double>());
}

// A huge update of the weights: the next steps are not finite.
TEST(Train, StopsWhereTheLossIsNotFinite) {
  const RunDirectory run;
  const ProgramResult result = run.train(
      {"--optimizer.learning_rate=1e18", "--optimizer.clip_norm=0", "--checkpoint.every=1"});
  EXPECT_TRUE(ended(result, 2,
                    {"step 1/6", "step 2: loss ", "first in chunk 0 (from token 0) of sequence 0",
                     "not finite from ", "the weights were not updated", "training.nonfinite"}));
  EXPECT_EQ(run.names("out"), (Names{"metrics.jsonl", "step-1"}));
}

TEST(Train, SkipsStepsThatAreNotFinite) {
  const RunDirectory run;
  const ProgramResult result = run.train(
      {"--optimizer.learning_rate=1e36", "--optimizer.clip_norm=0", "--checkpoint.every=1",
       "--training.nonfinite=skip", "--training.steps=3", "--checkpoint.keep=0"});
  ASSERT_TRUE(ended(result, 0, {"the step is skipped", "step 3/3", "  skipped"}));
  EXPECT_EQ(run.read("out/step-1/model.safetensors"), run.read("out/step-3/model.safetensors"));
  const std::vector<Json> lines = run.metrics();
  EXPECT_FALSE(lines[0].at("skipped").get<bool>());
  EXPECT_TRUE(lines[2].at("skipped").get<bool>());
  EXPECT_TRUE(lines[2].at("gradient_norm").is_null());
  // A run that never recovers still ends.
  EXPECT_TRUE(
      ended(run.train({"--resume", "--optimizer.learning_rate=1e36", "--optimizer.clip_norm=0",
                       "--training.nonfinite=skip", "--training.steps=40"}),
            2, {"10 steps in a row were skipped"}));
}

TEST(Train, AveragesOverABatch) {
  const RunDirectory one, two;
  ASSERT_TRUE(ended(
      one.train({"--training.steps=2", "--data.shuffle=false", "--optimizer.learning_rate=1e-12"}),
      0));
  ASSERT_TRUE(
      ended(two.train({"--training.steps=1", "--data.shuffle=false", "--training.batch=2"}), 0));
  const std::vector<Json> single = one.metrics(), both = two.metrics();
  ASSERT_EQ(both.size(), 1u);
  EXPECT_EQ(both[0].at("tokens"), 512);
  EXPECT_EQ(both[0].at("targets"), 512);
  // The weights hardly change: the batch's loss is the mean of the two sequences'.
  EXPECT_NEAR(both[0].at("loss").get<double>(),
              (single[0].at("loss").get<double>() + single[1].at("loss").get<double>()) / 2, 1e-6);
}

TEST(Train, KeepsOnlyTheNewestCheckpoints) {
  const RunDirectory run;
  ASSERT_TRUE(ended(run.train({"--checkpoint.every=1", "--checkpoint.keep=2"}), 0));
  EXPECT_EQ(run.names("out"), (Names{"metrics.jsonl", "step-5", "step-6"}));
}

TEST(Train, TheResultIsAModelToStartFrom) {
  const RunDirectory run;
  run.write_model("bf16", find_preset("tiny-qwen2"), DType::kBF16);
  ASSERT_TRUE(ended(run.train({"--model.preset=", "--model.path=bf16", "--training.steps=1"}), 0,
                    {"qwen2 from bf16"}));
  ASSERT_TRUE(ended(run.train({"--model.preset=", "--model.path=out/step-1", "--training.steps=1",
                               "--checkpoint.directory=again"}),
                    0, {"qwen2 from out/step-1"}));
  EXPECT_EQ(ModelDirectory::open(run.path("again/step-1")).specs().front().dtype, DType::kBF16);
}

TEST(Train, TheThreadsDoNotChangeTheResult) {
  const RunDirectory run;
  ASSERT_TRUE(ended(run.train({"--device.threads=1", "--checkpoint.directory=one"}), 0));
  ASSERT_TRUE(ended(run.train({"--device.threads=2", "--checkpoint.directory=two"}), 0));
  RunOptions library_threads;
  library_threads.environment = {{"OPENBLAS_NUM_THREADS", "3"}};
  ASSERT_TRUE(ended(run.train({"--checkpoint.directory=env"}, library_threads), 0));
  for (const std::string file : {"step-6/model.safetensors", "step-6/state/optimizer.safetensors"})
    for (const std::string other : {"two/", "env/"})
      EXPECT_TRUE(run.read("one/" + file) == run.read(other + file)) << other << file;
}

TEST(Train, DryRunWritesNothing) {
  const RunDirectory run;
  const Names before = run.names();
  ASSERT_TRUE(ended(run.train({"--dry-run"}), 0,
                    {"llama from tiny-llama",
                     fmt::format("all {} parameters", parameter_count(find_preset("tiny-llama"))),
                     "4097 tokens", "workspace", "nothing was written"}));
  EXPECT_EQ(run.names(), before);
}

TEST(Train, DryRunRefusesWhatTheRunWould) {
  const RunDirectory run;
  EXPECT_TRUE(refused(run.train({"--dry-run", "--data.path=nowhere.bin"}), {"nowhere.bin"}));
}

TEST(Train, DryRunLooksAtTheCheckpoints) {
  const RunDirectory run;
  ASSERT_TRUE(ended(run.train({"--training.steps=1"}), 0));
  EXPECT_TRUE(refused(run.train({"--dry-run"}), {"already holds step-1", "--resume"}));
  EXPECT_TRUE(ended(run.train({"--dry-run", "--resume"}), 0, {"everything checks out"}));
  std::filesystem::resize_file(run.path("out/step-1/model.safetensors"), 1000);
  EXPECT_TRUE(refused(run.train({"--dry-run", "--resume"}), {"step-1 is damaged"}));
  EXPECT_TRUE(refused(run.train({"--dry-run", "--checkpoint.directory=tokens.bin"}),
                      {"tokens.bin is no directory"}));
}

TEST(Train, TheTinyExampleChecksOut) {
  const RunDirectory run;
  const std::string example = source_directory() / "examples/tiny.toml";
  ASSERT_TRUE(ended(run.run({"train", example, "--dry-run", "--checkpoint.directory=out"}), 0,
                    {"1 x 2048 tokens in chunks of 512", "nothing was written"}));
  EXPECT_TRUE(run.nothing_written());
}

TEST(Train, TheFinetuneExampleChecksOut) {
  const RunDirectory run;
  run.write_model("model", changed_preset("tiny-qwen2", {{"vocab_size", 151936}}));
  ASSERT_TRUE(
      ended(run.run({"train", source_directory() / "examples/finetune.toml", "--dry-run",
                     "--model.path=model", "--data.path=tokens.bin", "--checkpoint.directory=out"}),
            0, {"4 x 32768 tokens in chunks of 1024", "nothing was written"}));
  EXPECT_TRUE(run.nothing_written());
}

TEST(Train, LeavesOldMetricsAloneWhenItIsRefused) {
  const RunDirectory run;
  ASSERT_TRUE(ended(run.train(), 0));
  const auto before = run.contents("out");
  ASSERT_TRUE(refused(run.train(), {"out already holds step-6", "add --resume"}));
  EXPECT_TRUE(same_files(before, run.contents("out")));
}

}  // namespace
}  // namespace longstride
