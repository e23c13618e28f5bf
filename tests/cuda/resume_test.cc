// Weights of a size that takes many pieces reach the GPU as they were written, and a run that was
// stopped goes on with the bits of one that was not.
#include <gtest/gtest.h>

#include <cstring>

#include "base/files.h"
#include "model/model_directory.h"
#include "model/parameters.h"
#include "model/presets.h"
#include "tests/data/temp_directory.h"
#include "train/trainer.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

ModelConfig model_of(std::int64_t vocabulary, std::int64_t hidden) {
  Json json = find_preset("tiny-llama").raw;
  json["vocab_size"] = vocabulary;
  json["hidden_size"] = hidden;
  return parse_config(json, "test");
}

std::string bytes_of(const ParameterSet& set) {
  std::string all(static_cast<std::size_t>(set.bytes()), '\0');
  set.device().copy_to_host(all.data(), set.data(), set.bytes());
  return all;
}

TEST(LoadOnCuda, EveryByteArrives) {
  const TempDirectory directory;
  const ModelConfig config = model_of(36'000, 256);  // an embedding of many pieces
  const auto cpu = make_cpu_device(), gpu = make_cuda_device();
  ParameterSet written(*cpu, config, DType::kBF16, "weights");
  initialize_random(written, config, 3);
  write_model_directory(directory.path(), config, written);
  const ModelDirectory model = ModelDirectory::open(directory.path());
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    ParameterSet expected(*cpu, config, dtype, "weights"), loaded(*gpu, config, dtype, "weights");
    model.load(expected);
    model.load(loaded);
    EXPECT_TRUE(bytes_of(loaded) == bytes_of(expected)) << name_of(dtype);
  }
}

TrainConfig run_of(const fs::path& directory, const std::string& output, int steps,
                   const std::string& memory) {
  const std::string text = R"(
    [model]
    path = "model"
    [data]
    path = "tokens.bin"
    [training]
    context = 512
    chunk = 128
    page = 64
    [schedule]
    kind = "constant"
    warmup_steps = 0
    [checkpoint]
    every = 2
    )";
  return parse_train_config(text + memory, "test", directory,
                            {"checkpoint.directory=" + (directory / output).string(),
                             "training.steps=" + std::to_string(steps)});
}

class Losses final : public RunSink {
 public:
  void on_step(const StepReport& report) override { all.push_back(report.loss); }
  std::vector<double> all;
};

std::vector<double> losses_of(const TrainConfig& config, bool resume) {
  const auto device = make_cuda_device();
  Losses losses;
  Trainer trainer(
      plan_run(config, *device, find_resume_point(config.checkpoint.directory, {resume})), *device,
      {&losses});
  EXPECT_TRUE(trainer.run());
  return losses.all;
}

void expect_bits_of_a_run_that_was_not_stopped(const ModelConfig& config) {
  const TempDirectory directory;
  {
    const auto cpu = make_cpu_device();
    ParameterSet weights(*cpu, config, DType::kBF16, "weights");
    initialize_random(weights, config, 3);
    fs::create_directory(directory.path() / "model");
    write_model_directory(directory.path() / "model", config, weights);
  }
  std::vector<std::uint32_t> tokens;
  for (std::uint32_t i = 0; i < 513; ++i)
    tokens.push_back(i % 97 * static_cast<std::uint32_t>(config.vocabulary / 97));
  directory.write("tokens.bin", tokens);

  const std::vector<double> whole = losses_of(run_of(directory.path(), "whole", 4, ""), false);
  ASSERT_EQ(whole.size(), 4u);
  EXPECT_LT(whole.back(), whole.front());
  const std::string disk = "disk_path = \"" + directory.path().string() + "\"\n";
  const std::string places[] = {"", "[memory]\noptimizer = \"host\"\n",
                                "[memory]\noptimizer = \"disk\"\n" + disk};
  for (const std::string& memory : places) {
    const std::string name = "run-" + std::to_string(&memory - places);
    const auto begin = losses_of(run_of(directory.path(), name, 2, memory), false);
    const auto end = losses_of(run_of(directory.path(), name, 4, memory), true);
    std::vector<double> both = begin;
    both.insert(both.end(), end.begin(), end.end());
    EXPECT_EQ(both, whole) << memory;
    for (const char* file : {"model.safetensors", "state/optimizer.safetensors"})
      EXPECT_EQ(checksum_of_file(directory.path() / name / "step-4" / file),
                checksum_of_file(directory.path() / "whole/step-4" / file))
          << memory << file;
  }
}

TEST(ResumeOnCuda, GivesTheBitsOfARunThatWasNotStopped) {
  expect_bits_of_a_run_that_was_not_stopped(model_of(400, 64));
}

TEST(ResumeOnCuda, LargeModelsToo) {
  expect_bits_of_a_run_that_was_not_stopped(model_of(36'000, 256));
}

}  // namespace
}  // namespace longstride
