// longstride train with moments in 8 bits and without masters: the same files to the bit on every
// place and after a resume, refusals of another choice, and the planned bytes.
#include "base/sizes.h"
#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

using Strings = std::vector<std::string>;

Strings operator+(Strings a, const Strings& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const Strings kCoded = {"--model.dtype=bf16", "--optimizer.state=8bit"},
              kRounded = {"--model.dtype=bf16", "--optimizer.masters=false"},
              kBoth = kCoded + Strings{"--optimizer.masters=false"};
const Strings kDevice = {"--memory.optimizer=device"}, kHost = {"--memory.optimizer=host"},
              kDisk = {"--memory.optimizer=disk", "--memory.disk_path=.", "--memory.disk=64M"};

bool same_files(const RunDirectory& a, const RunDirectory& b) {
  return a.read("out/step-6/model.safetensors") == b.read("out/step-6/model.safetensors") &&
         a.read("out/step-6/state/optimizer.safetensors") ==
             b.read("out/step-6/state/optimizer.safetensors");
}

double figure(const RunDirectory& run, const char* key) {
  return run.metrics().front().at(key).get<double>();
}

TEST(OptimizerKinds, TheSameBitsOnEveryPlaceAndAfterAResume) {
  for (const Strings& kind : {kCoded, kRounded, kBoth}) {
    const RunDirectory resident, threads, usual;
    ASSERT_TRUE(ended(resident.train(kind + kDevice), 0, {"saved out/step-6"}));
    ASSERT_TRUE(ended(threads.train(kind + kDevice + Strings{"--device.threads=1"}), 0));
    EXPECT_TRUE(same_files(resident, threads));
    ASSERT_TRUE(ended(usual.train({"--model.dtype=bf16"}), 0));
    EXPECT_FALSE(same_files(resident, usual));
    for (const auto& [from, to] :
         {std::pair(kDevice, kHost), std::pair(kHost, kDisk), std::pair(kDisk, kDevice)}) {
      const RunDirectory whole, parts;
      ASSERT_TRUE(ended(whole.train(kind + from), 0));
      EXPECT_TRUE(same_files(resident, whole)) << kind.back() << " " << from.front();
      ASSERT_TRUE(ended(parts.train(kind + from + Strings{"--training.steps=3"}), 0));
      ASSERT_TRUE(
          ended(parts.train(kind + to + Strings{"--resume"}), 0, {"resuming after step 3"}));
      EXPECT_TRUE(same_files(resident, parts)) << kind.back() << " " << to.front();
    }
  }
}

TEST(OptimizerKinds, AnotherChoiceDoesNotResume) {
  const RunDirectory run;
  ASSERT_TRUE(ended(run.train(kBoth + Strings{"--training.steps=3"}), 0));
  EXPECT_TRUE(refused(run.train(kRounded + Strings{"--resume"}),
                      {"optimizer.state is \"fp32\" but the checkpoint", "was made with \"8bit\"",
                       "put the old value back"}));
  EXPECT_TRUE(refused(run.train(kCoded + Strings{"--resume"}),
                      {"optimizer.masters is true but the checkpoint", "was made with false",
                       "put the old value back"}));
  ASSERT_TRUE(ended(run.train(kBoth + Strings{"--resume"}), 0, {"resuming after step 3"}));
}

TEST(OptimizerKinds, PlannedBytesAreThoseOfTheRun) {
  double least = 0;
  for (const Strings& kind : {kBoth, kCoded, kRounded, Strings{"--model.dtype=bf16"}}) {
    const RunDirectory run;
    ASSERT_TRUE(ended(run.train(kind + kDevice + Strings{"--training.steps=1"}), 0));
    const double bytes = figure(run, "bytes_optimizer");
    EXPECT_GT(bytes, least);
    least = bytes;
    const ProgramResult dry = run.train(kind + kDevice + Strings{"--dry-run", "--resume"});
    EXPECT_TRUE(ended(dry, 0, {format_bytes(bytes)}));
  }
}

TEST(OptimizerKinds, BadValuesAreRefused) {
  const RunDirectory run;
  EXPECT_TRUE(
      ended(run.train({"--optimizer.state=4bit"}), 2, {"optimizer.state", "\"fp32\", \"8bit\""}));
  EXPECT_TRUE(ended(run.train({"--optimizer.state=8"}), 2, {"optimizer.state"}));
  EXPECT_TRUE(ended(run.train({"--optimizer.masters=no"}), 2, {"optimizer.masters"}));
  EXPECT_TRUE(run.nothing_written());
}

}  // namespace
}  // namespace longstride
