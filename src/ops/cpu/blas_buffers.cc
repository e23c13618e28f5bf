#include "ops/cpu/blas_buffers.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <vector>

#include "base/error.h"
#include "base/sizes.h"

// Internal functions of OpenBLAS. Absent in other BLAS libraries.
extern "C" {
__attribute__((weak)) void* blas_memory_alloc(int position);
__attribute__((weak)) void blas_memory_free(void* buffer);
}

namespace longstride::ops::cpu {
namespace {

constexpr std::int64_t kBufferBytes = std::int64_t{128} << 20;  // BUFFER_SIZE of OpenBLAS on x86-64

// When it is loaded, OpenBLAS starts a thread with a buffer for every core, and ends the program if
// it cannot. We call it from our own threads, so it needs none.
void start_no_threads(int /*argc*/, char** /*argv*/, char** /*environment*/) {
  setenv("OPENBLAS_NUM_THREADS", "1", 1);
}

std::string text(std::int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

std::int64_t address_space_in_use() {
  std::ifstream file("/proc/self/statm");
  std::int64_t pages = 0;
  file >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

[[noreturn]] void refuse(int threads) {
  const std::int64_t needed = threads * kBufferBytes, used = address_space_in_use();
  std::string limit = "the system refuses it";
  rlimit allowed{};
  if (getrlimit(RLIMIT_AS, &allowed) == 0 && allowed.rlim_cur != RLIM_INFINITY)
    limit = fmt::format("the limit is {} (ulimit -v {}), of which {} are taken",
                        text(static_cast<std::int64_t>(allowed.rlim_cur)), allowed.rlim_cur / 1024,
                        text(used));
  throw Error(
      fmt::format(
          "matrix products on the CPU need {} of address space ({} for each of {} thread{}): "
          "{}",
          text(needed), text(kBufferBytes), threads, threads == 1 ? "" : "s", limit),
      fmt::format("set ulimit -v to {} or more, besides what the model takes, or to unlimited; or "
                  "use fewer threads (device.threads, or LONGSTRIDE_THREADS)",
                  (used + needed) / 1024));
}

bool system_gives(int buffers) {
  std::vector<void*> maps;
  for (int i = 0; i < buffers; ++i) {
    void* map =
        mmap(nullptr, kBufferBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) break;
    maps.push_back(map);
  }
  for (void* map : maps) munmap(map, kBufferBytes);
  return std::ssize(maps) == buffers;
}

}  // namespace

// Runs before OpenBLAS's own constructor, which reads the environment: its priority is 101.
__attribute__((section(".init_array.00100"),
               used)) void (*blas_starts_no_threads)(int, char**, char**) = start_no_threads;

void reserve_blas_buffers(int threads) {
  static std::atomic<int> reserved{0};
  static std::mutex mutex;
  if (threads <= reserved) return;
  const std::scoped_lock lock(mutex);
  if (threads <= reserved) return;
  if (!system_gives(threads - reserved)) refuse(threads);
  if (blas_memory_alloc != nullptr && blas_memory_free != nullptr) {
    // OpenBLAS keeps its buffers for reuse. Allocating all before freeing any makes them distinct.
    std::vector<void*> buffers;
    for (int i = 0; i < threads; ++i)
      if (void* buffer = blas_memory_alloc(0); buffer != nullptr) buffers.push_back(buffer);
    for (void* buffer : buffers) blas_memory_free(buffer);
    if (std::ssize(buffers) < threads)
      throw Error(fmt::format("OpenBLAS serves at most {} threads at once, not {}", buffers.size(),
                              threads),
                  "set device.threads, or LONGSTRIDE_THREADS, lower");
  }
  reserved = threads;
}

}  // namespace longstride::ops::cpu
