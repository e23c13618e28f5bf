// Ranks as threads whose "device memory" is host memory and whose NCCL is the strict twin.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/nccl_link.h"
#include "comm/thread_link.h"

namespace longstride::comm {

// The twin's own functions (tests/comm/nccl_twin/twin.h).
struct Twin {
  void (*reset)() = nullptr;
  void (*set_version)(int) = nullptr;
  const char* (*violations)() = nullptr;
  void* (*stream_create)() = nullptr;
  void (*stream_destroy)(void*) = nullptr;
  void (*stream_synchronize)(void*) = nullptr;
  void (*stream_run)(void*, void (*)(void*), void*) = nullptr;
  void (*stream_wait)(void*, void*) = nullptr;
  void* (*event_create)() = nullptr;
  void (*event_destroy)(void*) = nullptr;
  void (*event_record)(void*, void*) = nullptr;
  int (*event_passed)(void*) = nullptr;
};
const Twin& twin();
// The twin as NCCL. The first call of a test forgets what was before: reset_twin.
const NcclLibrary& twin_library();
void reset_twin();

class TwinStreams final : public LinkStreams {
 public:
  TwinStreams();
  TwinStreams(const TwinStreams&) = delete;
  TwinStreams& operator=(const TwinStreams&) = delete;
  ~TwinStreams() override;
  // The stream that computes. Runs the function there.
  void compute(std::function<void()> function);
  void finish_computing();

  Stream add_stream() override;
  Mark add_mark() override;
  std::byte* scratch(std::int64_t bytes) override;
  void after_compute(Stream stream) override;
  void record(Mark mark, Stream stream) override { twin().event_record(mark, stream); }
  bool passed(Mark mark) override { return twin().event_passed(mark) != 0; }
  void compute_waits(Mark mark) override { twin().stream_wait(compute_, mark); }
  void synchronize(Stream stream) override { twin().stream_synchronize(stream); }
  void enter_thread() override {}

 private:
  void* compute_;
  void* before_;
  std::vector<void*> streams_, events_;
  std::vector<std::vector<std::byte>> scratch_;
};

// A rank of a test.
struct NcclRank {
  MessageLink& host;
  TwinStreams& streams;
  NcclLink& link;
};
// Calls body on so many ranks, closes the links, and returns what each rank threw. No options: all
// lanes, and collectives.
std::vector<std::exception_ptr> run_nccl_ranks(int ranks, const LinkOptions& options,
                                               const std::function<void(NcclRank)>& body,
                                               const NcclOptions* nccl = nullptr);
// "Error: text", "RankFailed 1: text", "nothing".
std::string what_was_thrown(const std::exception_ptr& why);

}  // namespace longstride::comm
