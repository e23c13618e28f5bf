// The twin itself: what it computes in small kernels, and what it notices.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "tests/cuda_twin/decoder.h"
#include "tests/cuda_twin/memory.h"
#include "tests/cuda_twin/queue.h"
#include "tests/cuda_twin/warp.h"

namespace longstride::twin {
namespace {

constexpr std::size_t kWords = 64;

// `body` has %t (the thread), %p (the address of 64 words, which are 0 to 63), and registers
// %a, %b, %c, %d (32 bits), %q, %r (64 bits), %x (a predicate); "words" is 256 bytes of shared
// memory. Returns the words after one block of `threads`.
std::vector<std::uint32_t> words_after(const std::string& body, std::uint32_t threads = 64,
                                       std::uint64_t order = 1) {
  const Kernel kernel = decode_kernel(
      ".entry test(\n\t.param .u64 test_param_0\n)\n{\n"
      "\t.reg .pred %x;\n\t.reg .b32 %t, %a, %b, %c, %d;\n\t.reg .b64 %p, %q, %r;\n"
      "\t.shared .align 4 .b8 words[256];\n"
      "\tld.param.u64 %p, [test_param_0];\n\tmov.u32 %t, %tid.x;\n" +
          body + "\n\tret;\n}",
      {});
  struct Freed {
    void* data;
    ~Freed() { free_device(data); }
  } const memory{allocate_device(4 * kWords)};
  auto* const words = static_cast<std::uint32_t*>(memory.data);
  std::iota(words, words + kWords, 0u);
  const auto address = reinterpret_cast<std::uint64_t>(words);
  Block block;
  block.kernel = &kernel;
  block.parameters = reinterpret_cast<const std::byte*>(&address);
  block.at = {0, 0, 0};
  block.threads = {threads, 1, 1};
  block.shared.resize(kernel.shared_bytes, std::byte{0xFF});
  std::vector<Warp> warps;
  for (std::uint32_t first = 0; first < threads; first += kLanes)
    warps.emplace_back(block, static_cast<int>(first / kLanes),
                       threads - first < kLanes ? (1u << (threads - first)) - 1 : kAllLanes);
  run_block(block, warps, order);
  return {words, words + kWords};
}

// %q = the address of the thread's word.
const std::string kOwn = "mul.wide.u32 %q, %t, 4;\nadd.s64 %q, %p, %q;\n";

std::string fault_of(const std::string& body, std::uint32_t threads = 64) {
  try {
    words_after(body, threads);
  } catch (const Fault& fault) {
    return fault.what();
  }
  return "none";
}
testing::AssertionResult tells(const std::string& fault, const std::string& part) {
  if (fault.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << fault;
}

TEST(CudaTwin, LanesBranchApartAndMeetAgain) {
  // Odd threads add 100, the others 200; then all add their neighbour's sum.
  const auto words = words_after(kOwn + R"(
    and.b32 %a, %t, 1;
    setp.eq.u32 %x, %a, 1;
    @%x bra $odd;
    add.u32 %b, %t, 200;
    bra $met;
$odd:
    add.u32 %b, %t, 100;
$met:
    shfl.sync.bfly.b32 %c, %b, 1, 31, -1;
    add.u32 %b, %b, %c;
    st.global.u32 [%q], %b;)");
  for (std::uint32_t t = 0; t < kWords; ++t) EXPECT_EQ(words[t], t + (t ^ 1u) + 300) << t;
}

// Each thread reads what another warp's has written.
const std::string kExchange = kOwn + R"(
    shl.b32 %a, %t, 2;
    mov.u32 %b, words;
    add.u32 %b, %b, %a;
    st.shared.u32 [%b], %t;
    BARRIER
    xor.b32 %a, %a, OTHER;
    mov.u32 %b, words;
    add.u32 %b, %b, %a;
    ld.shared.u32 %c, [%b];
    st.global.u32 [%q], %c;)";

// With the thread whose number differs in the bits of `other`.
std::string exchange(const std::string& barrier, std::uint32_t other = 32) {
  std::string body = kExchange;
  body.replace(body.find("OTHER"), 5, std::to_string(4 * other));
  return body.replace(body.find("BARRIER"), 7, barrier);
}

TEST(CudaTwin, AMissingBarrierShowsInEveryOrder) {
  for (std::uint64_t order = 1; order < 9; ++order) {
    const auto right = words_after(exchange("bar.sync 0;"), 64, order),
               wrong = words_after(exchange(""), 64, order);
    int differ = 0;
    for (std::uint32_t t = 0; t < kWords; ++t) {
      EXPECT_EQ(right[t], t ^ 32u) << order;
      differ += wrong[t] != right[t] ? 1 : 0;
    }
    EXPECT_EQ(differ, 32) << order;  // what the warp that came first has read
  }
}

TEST(CudaTwin, AMissingBarrierOfAWarpShowsInSomeOrders) {
  int shows = 0;
  for (std::uint64_t order = 1; order < 201; ++order) {
    const auto right = words_after(exchange("bar.warp.sync -1;", 1), 32, order),
               wrong = words_after(exchange("", 1), 32, order);
    for (std::uint32_t t = 0; t < 32; ++t) EXPECT_EQ(right[t], t ^ 1u) << order;
    shows += wrong != right ? 1 : 0;
  }
  EXPECT_GT(shows, 20);
  EXPECT_LT(shows, 200);
}

TEST(CudaTwin, ABarrierThatNotAllReach) {
  EXPECT_TRUE(tells(fault_of("setp.lt.u32 %x, %t, 32;\n@%x bra $end;\nbar.sync 0, 64;\n$end:"),
                    "wait at a barrier"));
}

TEST(CudaTwin, AccessesOutsideOfMemory) {
  EXPECT_TRUE(tells(fault_of(kOwn + "ld.global.u32 %a, [%q+4];"), "in no allocation"));
  EXPECT_TRUE(tells(fault_of("mov.u64 %q, 64;\nld.global.u32 %a, [%q];"), "in no allocation"));
  EXPECT_TRUE(tells(fault_of(kOwn + "ld.global.u32 %a, [%q+2];"), "not aligned"));
  EXPECT_TRUE(tells(fault_of("mov.u32 %a, words;\nld.shared.u32 %b, [%a+1024];"), "shared memory"));
}

TEST(CudaTwin, AShuffleOfLanesThatAreNotThere) {
  EXPECT_TRUE(tells(fault_of("setp.lt.u32 %x, %t, 8;\n@!%x bra $end;\n"
                             "shfl.sync.bfly.b32 %c, %t, 1, 31, -1;\n$end:",
                             32),
                    "which do not come"));
  EXPECT_TRUE(tells(fault_of("shfl.sync.bfly.b32 %c, %t, 8, 31, 255;", 8), "takes no part"));
}

TEST(CudaTwin, AnInstructionThatItDoesNotKnow) {
  EXPECT_TRUE(tells(fault_of("wgmma.fence.sync.aligned;"), "does not know"));
}

TEST(CudaTwin, CopiesToSharedMemoryComeWhenTheyAreWaitedFor) {
  const auto copy = [](const std::string& wait) {
    return words_after(kOwn + R"(
    shl.b32 %a, %t, 2;
    mov.u32 %b, words;
    add.u32 %b, %b, %a;
    mov.u32 %c, 7;
    st.shared.u32 [%b], %c;
    cp.async.ca.shared.global [%b], [%q], 4;
    cp.async.commit_group;
    )" + wait + R"(
    ld.shared.u32 %c, [%b];
    cp.async.wait_all;
    st.global.u32 [%q], %c;)");
  };
  EXPECT_EQ(copy("cp.async.wait_group 0;")[40], 40u);
  EXPECT_EQ(copy("cp.async.wait_group 1;")[40], 7u);
}

// The order of streams that do not wait for each other is drawn anew for every run of work.
TEST(CudaTwin, StreamsGoAheadOfEachOther) {
  const cudaStream_t first = make_stream(), second = make_stream();
  const cudaEvent_t event = make_event();
  int before = 0, after = 0, value = 0;
  for (int i = 0; i < 200; ++i) {
    enqueue(first, [&] { value = i; });
    enqueue(second, [&, i] { ++(value == i ? after : before); });
    wait_for_stream(first);
    wait_for_stream(second);
  }
  EXPECT_GT(before, 5);
  EXPECT_GT(after, 5);
  before = 0;
  for (int i = 0; i < 200; ++i) {
    enqueue(first, [&] { value = -i; });
    record(event, first);
    let_wait(second, event);
    enqueue(second, [&, i] { before += value == -i ? 0 : 1; });
    wait_for_stream(second);
  }
  EXPECT_EQ(before, 0);
  wait_for_stream(first);
  end_event(event);
  end_stream(first);
  end_stream(second);
}

TEST(CudaTwin, KnowsWhichMemoryIsWhere) {
  void* const device = allocate_device(100);
  void* const pinned = allocate_pinned(100);
  EXPECT_TRUE(lies_in(Place::kDevice, device, 100));
  EXPECT_FALSE(lies_in(Place::kDevice, device, 101));
  EXPECT_FALSE(lies_in(Place::kPinned, device, 100));
  EXPECT_TRUE(lies_in(Place::kPinned, pinned, 100));
  std::uint32_t unwritten = 0;
  std::memcpy(&unwritten, device, sizeof(unwritten));
  EXPECT_EQ(unwritten, 0xFFFFFFFFu);  // NaN, whatever type it is read as
  EXPECT_TRUE(free_device(device));
  EXPECT_FALSE(free_device(pinned));
  EXPECT_TRUE(free_pinned(pinned));
}

}  // namespace
}  // namespace longstride::twin
