// New memory is zeroed before anyone gets it: a copy lane does not wait for the compute stream,
// which zeroed a message's buffer after the message had arrived.
#include <cstring>

#include "device/mover.h"
#include "tests/cuda/gpu_fixture.h"

namespace longstride {
namespace {

using NewMemoryOnCuda = OnGpu;

TEST_F(NewMemoryOnCuda, ACopyLaneMayUseItAtOnce) {
  constexpr std::int64_t kBytes = 1 << 20;
  const std::unique_ptr<Mover> mover = gpu().make_mover();
  const std::unique_ptr<Memory> host = gpu().allocate_host(kBytes, kBytes, "a test");
  host->prepare(0, kBytes);
  std::memset(host->data(), 7, kBytes);
  const View busy = make(DType::kF32, Shape({1 << 18}));
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 10; ++i) ops::add(stream(), {.a = busy, .b = busy, .y = busy});
    const std::unique_ptr<Memory> memory = gpu().allocate(kBytes, "a test");
    const Mover::Copy copy{memory->data(), host->data(), kBytes};
    mover->copy(Lane::kFromHost, {&copy, 1});
    mover->finish();
    const View copied(memory->data(), DType::kF32, Shape({kBytes / 4}));
    ASSERT_EQ(std::memcmp(bytes(copied).data(), host->data(), kBytes), 0) << round;
  }
}

}  // namespace
}  // namespace longstride
