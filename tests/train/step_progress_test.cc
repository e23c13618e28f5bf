// The share of a step that is done, as a run reports it.
#include <gtest/gtest.h>

#include <map>

#include "tests/data/temp_directory.h"
#include "train/trainer.h"

namespace longstride {
namespace {

class ProgressSink : public RunSink {
 public:
  void on_progress(const StepProgress& p) override {
    EXPECT_GE(p.done, last_ - 1e-12);
    EXPECT_LE(p.done, 1 + 1e-12);
    last_ = p.done;
    begins_.emplace(p.sequence, p.done);
  }
  const std::map<std::int64_t, double>& begins() const { return begins_; }

 private:
  double last_ = 0;
  std::map<std::int64_t, double> begins_;
};

// One step over documents of these lengths, one per sequence.
std::map<std::int64_t, double> begins_of(const std::vector<int>& lengths) {
  const TempDirectory temp;
  std::vector<std::uint32_t> tokens;
  for (const int length : lengths) {
    tokens.insert(tokens.end(), static_cast<std::size_t>(length) - 1, 7);
    tokens.push_back(0);
  }
  temp.write("tokens.bin", tokens);
  const TrainConfig config = parse_train_config(
      "[model]\npreset = \"tiny-llama\"\n"
      "[data]\npath = \"tokens.bin\"\ndocument_token = 0\npack = false\nshuffle = false\n"
      "[training]\ncontext = 256\nchunk = 32\npage = 16\nsteps = 1\n"
      "[checkpoint]\ndirectory = \"out\"\n[device]\nname = \"cpu\"\n",
      "run.toml", temp.path(), {"training.batch=" + std::to_string(lengths.size())});
  const std::unique_ptr<Device> device = make_cpu_device();
  ProgressSink sink;
  Trainer trainer(plan_run(config, *device), *device, {&sink});
  EXPECT_TRUE(trainer.run());
  return sink.begins();
}

TEST(StepProgress, SequencesOfOneLengthCountAlike) {
  const auto begins = begins_of({100, 100, 100, 100});
  for (const std::int64_t sequence : {0, 1, 2, 3})
    EXPECT_NEAR(begins.at(sequence), static_cast<double>(sequence) / 4, 1e-12);
}

TEST(StepProgress, LongerSequencesCountMore) {
  const auto begins = begins_of({16, 240, 120});
  const double first = begins.at(1), second = begins.at(2) - begins.at(1), third = 1 - begins.at(2);
  EXPECT_GT(first, 0);
  EXPECT_LT(first, 0.1);
  EXPECT_GT(second, 2 * third) << "attention grows with the square";
  EXPECT_LT(second, 4 * third);
}

}  // namespace
}  // namespace longstride
