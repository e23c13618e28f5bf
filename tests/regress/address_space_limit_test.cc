// Under a limit of address space (ulimit -v) OpenBLAS asked for its buffers for ever: the program
// hung, at its start, at its first matrix product or at its end. Threads that the system refused
// ended it by a signal.
#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

constexpr rlim_t kMiB = rlim_t{1} << 20;

RunOptions limited(rlim_t bytes) {
  RunOptions options;
  options.address_bytes = bytes;
  options.timeout_s = 20;
  return options;
}

TEST(AddressSpaceLimit, TooLittleForMatrixProductsIsSaid) {
  const RunDirectory run;
  for (const rlim_t mib : {100, 150, 250}) {
    const ProgramResult result = run.train({"--device.threads=2"}, limited(mib * kMiB));
    EXPECT_TRUE(refused(result, {"256.00 MiB of address space", "each of 2 threads",
                                 fmt::format("ulimit -v {}", mib * 1024), "fewer threads"}))
        << mib;
    EXPECT_TRUE(run.nothing_written());
  }
}

TEST(AddressSpaceLimit, ADryRunSaysItToo) {
  EXPECT_TRUE(
      refused(RunDirectory().train({"--dry-run", "--device.threads=3"}, limited(200 * kMiB)),
              {"384.00 MiB of address space", "ulimit -v"}));
}

TEST(AddressSpaceLimit, EnoughIsEnough) {
  EXPECT_TRUE(ended(
      RunDirectory().train({"--device.threads=1", "--training.steps=1"}, limited(600 * kMiB)), 0));
}

TEST(AddressSpaceLimit, ThreadsThatTheSystemRefusesAreSaid) {
  // The buffers fit, with little left for the stacks of 120 threads.
  const ProgramResult result = RunDirectory().train({"--device.threads=120", "--training.steps=1"},
                                                    limited((120 * 128 + 200) * kMiB));
  EXPECT_TRUE(refused(result, {"no more threads", "ulimit -u", "device.threads"}));
}

}  // namespace
}  // namespace longstride
