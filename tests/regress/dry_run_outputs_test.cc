// A dry run said that everything checks out where the run could not write its checkpoints or
// metrics, or would have put pages on a "disk" that is memory.
#include <sys/stat.h>

#include "tests/cli/run_directory.h"
#include "train/output_check.h"

namespace longstride {
namespace {

TEST(DryRunOutputs, PlacesThatCannotBeWritten) {
  const RunDirectory run;
  const auto before = run.contents("");
  EXPECT_TRUE(refused(run.train({"--dry-run", "--checkpoint.directory=tokens.bin/out"}),
                      {"tokens.bin/out: Not a directory", "choose another path"}));
  EXPECT_TRUE(refused(run.train({"--dry-run", "--checkpoint.directory=tokens.bin"}),
                      {"tokens.bin is no directory"}));
  EXPECT_TRUE(refused(run.train({"--dry-run", "--metrics.file=tokens.bin/m/x.jsonl"}),
                      {"tokens.bin/m/x.jsonl: Not a directory", "set metrics.file"}));
  std::filesystem::create_directory(run.path("d"));
  EXPECT_TRUE(
      refused(run.train({"--dry-run", "--metrics.file=d"}), {"metrics file d", "Is a dir"}));
  EXPECT_TRUE(refused(run.train({"--dry-run", "--checkpoint.directory=/proc/nowhere/out"}),
                      {"/proc/nowhere/out", "checkpoint.directory"}));
  EXPECT_TRUE(same_files(before, run.contents("")));
}

TEST(DryRunOutputs, ADirectoryWithoutPermission) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write anywhere";
  const RunDirectory run;
  std::filesystem::create_directory(run.path("locked"));
  ASSERT_EQ(::chmod(run.path("locked").c_str(), 0500), 0);
  EXPECT_TRUE(refused(run.train({"--dry-run", "--checkpoint.directory=locked/a/b"}),
                      {"locked/a/b: Permission denied"}));
}

TEST(DryRunOutputs, LeavesNothingBehind) {
  const RunDirectory run;
  const auto names = run.names();
  EXPECT_TRUE(ended(
      run.train({"--dry-run", "--checkpoint.directory=a/b/c", "--metrics.file=m/n/metrics.jsonl"}),
      0));
  EXPECT_EQ(run.names(), names);
}

TEST(DryRunOutputs, ADiskMustBeOne) {
  const RunDirectory run;
  EXPECT_TRUE(refused(run.train({"--dry-run", "--memory.optimizer=disk", "--memory.disk=64M",
                                 "--memory.disk_path=nowhere"}),
                      {"memory.disk_path", "nowhere cannot be written: No such file"}));
  if (disk_kind_of("/dev/shm") != DiskKind::kMemory) GTEST_SKIP() << "/dev/shm is no tmpfs";
  for (const char* dry : {"--dry-run", "--training.steps=1"})
    EXPECT_TRUE(
        refused(run.train({dry, "--memory.optimizer=disk", "--memory.disk=64M",
                           "--memory.disk_path=/dev/shm"}),
                {"memory.disk_path /dev/shm is not on a disk but in memory", "memory.host"}));
  EXPECT_TRUE(run.nothing_written());
}

TEST(DryRunOutputs, KindsOfDisks) {
  EXPECT_EQ(disk_kind(0xef53), DiskKind::kLocal);        // ext4
  EXPECT_EQ(disk_kind(0x58465342), DiskKind::kLocal);    // xfs
  EXPECT_EQ(disk_kind(0x01021994), DiskKind::kMemory);   // tmpfs
  EXPECT_EQ(disk_kind(0x858458f6), DiskKind::kMemory);   // ramfs
  EXPECT_EQ(disk_kind(-0x7a7ba70a), DiskKind::kMemory);  // the same, with its sign extended
  EXPECT_EQ(disk_kind(0x6969), DiskKind::kNetwork);      // nfs
  EXPECT_EQ(disk_kind(0xff534d42), DiskKind::kNetwork);  // cifs
  EXPECT_EQ(disk_kind(0x65735546), DiskKind::kNetwork);  // fuse
  EXPECT_EQ(disk_kind(0x01021997), DiskKind::kNetwork);  // 9p
}

}  // namespace
}  // namespace longstride
