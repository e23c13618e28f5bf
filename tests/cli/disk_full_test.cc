// A save that does not fit on the disk ends the run with the reason, and earlier saves are intact.
#include <sys/mount.h>

#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

using Names = std::set<std::string>;

TEST(DiskFull, AFileOverItsLimitLosesNothing) {
  const RunDirectory whole, run;
  ASSERT_TRUE(ended(whole.train(), 0));
  ASSERT_TRUE(ended(run.train({"--training.steps=3"}), 0));
  const auto before = run.contents("out/step-3");

  RunOptions limited;
  limited.file_bytes = 100'000;  // the weights have five times as many, the metrics far fewer
  EXPECT_TRUE(refused(run.train({"--resume"}, limited),
                      {"step 6/6", "cannot write out/.step-6.unfinished-", "model.safetensors",
                       "File too large", "ulimit -f", "earlier saves are untouched"}));
  EXPECT_EQ(run.names("out"), (Names{"metrics.jsonl", "step-3"}));
  EXPECT_TRUE(same_files(before, run.contents("out/step-3")));

  ASSERT_TRUE(ended(run.train({"--resume"}), 0, {"resuming after step 3"}));
  EXPECT_TRUE(same_files(whole.contents("out/step-6"), run.contents("out/step-6")));
  EXPECT_EQ(without_timings(whole.metrics()).back(), without_timings(run.metrics()).back());
  EXPECT_EQ(run.metrics().size(), 6u);
}

TEST(DiskFull, TheGradientsFileIsAllOrNothing) {
  const RunDirectory run;
  run.write_model("model", find_preset("tiny-llama"));
  const std::vector<std::string> words = {"gradients",  "--model", "model",          "--tokens",
                                          "tokens.bin", "--out",   "g/g.safetensors"};
  ASSERT_TRUE(ended(run.run(words), 0));
  const std::string before = run.read("g/g.safetensors");
  RunOptions limited;
  limited.file_bytes = 100'000;
  EXPECT_TRUE(refused(run.run(words, limited), {"cannot write g/g.safetensors", "File too large"}));
  EXPECT_EQ(run.names("g"), (Names{"g.safetensors"}));
  EXPECT_TRUE(run.read("g/g.safetensors") == before);
}

// A small file system; unmounted at the end.
class Mount {
 public:
  explicit Mount(fs::path at) : at_(std::move(at)) {
    fs::create_directories(at_);
    mounted_ = ::mount("tmpfs", at_.c_str(), "tmpfs", 0, "size=2m") == 0;
  }
  Mount(const Mount&) = delete;
  Mount& operator=(const Mount&) = delete;
  ~Mount() {
    if (mounted_) ::umount2(at_.c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }
  bool grow(const char* size = "8m") const {
    const std::string options = fmt::format("size={}", size);
    return ::mount("tmpfs", at_.c_str(), "tmpfs", MS_REMOUNT, options.c_str()) == 0;
  }

 private:
  fs::path at_;
  bool mounted_ = false;
};

TEST(DiskFull, AFullDiskLosesNothing) {
  const RunDirectory whole, run;
  ASSERT_TRUE(ended(whole.train(), 0));
  const Mount disk(run.path("out"));
  if (!disk.mounted()) GTEST_SKIP() << "this user or container may not mount a file system";
  // A save takes a megabyte and a half: the first fits, the second does not.
  EXPECT_TRUE(refused(run.train(), {"saved out/step-3", "step 6/6", "out/.step-6.unfinished-",
                                    "No space left on device", "free some disk space",
                                    "earlier saves are untouched"}));
  EXPECT_EQ(run.names("out"), (Names{"metrics.jsonl", "step-3"}));
  EXPECT_TRUE(same_files(whole.contents("out/step-3"), run.contents("out/step-3")));

  ASSERT_TRUE(disk.grow());
  ASSERT_TRUE(ended(run.train({"--resume"}), 0, {"resuming after step 3"}));
  EXPECT_TRUE(same_files(whole.contents("out/step-6"), run.contents("out/step-6")));
}

TEST(DiskFull, ARunWhoseSavesCannotFitIsRefusedBeforeItBegins) {
  const RunDirectory run;
  const Mount disk(run.path("disk"));
  if (!disk.mounted()) GTEST_SKIP() << "this user or container may not mount a file system";
  const std::string directory = "--checkpoint.directory=disk/not/there/yet";
  // One fits, two almost fit.
  EXPECT_TRUE(ended(run.train({directory, "--dry-run"}), 0,
                    {"a save", "1.46 MiB of 2.00 MiB free in disk/not/there/yet",
                     "has room for 1 of 2 saves of 1.46 MiB that the run will keep there at once",
                     "checkpoint.keep = 2"}));
  EXPECT_EQ(run.train({directory, "--dry-run", "--checkpoint.every=0"}).err.find("has room for"),
            std::string::npos);
  run.files().write_text("disk/full", std::string(1 << 20, 'x'));
  for (const char* dry : {"--dry-run", "--training.steps=6"})
    EXPECT_TRUE(
        refused(run.train({directory, dry}),
                {"a save takes 1.46 MiB and checkpoint.directory disk/not/there/yet has 1.00 MiB "
                 "free",
                 "name a disk with more room as checkpoint.directory"}));
  EXPECT_EQ(run.names("disk"), (Names{"full"}));
}

TEST(DiskFull, WhatAKilledSaveLeftIsNoReasonToRefuse) {
  const RunDirectory run;
  const Mount disk(run.path("out"));
  if (!disk.mounted() || !disk.grow("3400k"))
    GTEST_SKIP() << "this user or container may not mount a file system";
  ASSERT_TRUE(ended(run.train({"--training.steps=3"}), 0));
  run.files().write_text("out/.step-6.unfinished-1/model.safetensors", std::string(1 << 20, 'x'));
  ASSERT_TRUE(ended(run.train({"--resume", "--dry-run"}), 0));
  ASSERT_TRUE(ended(run.train({"--resume"}), 0, {"a save that was cut short", "saved out/step-6"}));
  // A finished run saves nothing, so the disk does not matter.
  ASSERT_TRUE(ended(run.train({"--resume"}), 0, {"6 of 6 steps are done already"}));
}

// The planned size of a save is its real size, except for headers and configuration.
TEST(DiskFull, ASaveIsAsLargeAsPlanned) {
  for (const char* dtype : {"f32", "bf16"}) {
    const RunDirectory run;
    const std::string planned = std::string(dtype) == "f32" ? "a save 1.46 MiB" : "a save 1.70 MiB";
    ASSERT_TRUE(ended(run.train({"--training.steps=1", fmt::format("--model.dtype={}", dtype)}), 0,
                      {planned}));
    std::size_t bytes = 0;
    for (const auto& [name, content] : run.contents("out/step-1")) bytes += content.size();
    const double expected = (std::string(dtype) == "f32" ? 12 : 14) * 127'296.0;
    EXPECT_NEAR(static_cast<double>(bytes), expected, 20'000);
  }
}

}  // namespace
}  // namespace longstride
