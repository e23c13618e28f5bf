#include "tests/comm/nccl_ranks.h"

#include <dlfcn.h>

#include "base/error.h"
#include "tests/where.h"

namespace longstride::comm {
namespace {

template <class F>
void find_in_twin(void* handle, const char* name, F*& into) {
  into = reinterpret_cast<F*>(dlsym(handle, name));
  LS_CHECK(into != nullptr, "the twin has no {}", name);
}

void call_and_delete(void* function) {
  const std::unique_ptr<std::function<void()>> owned(static_cast<std::function<void()>*>(function));
  (*owned)();
}

}  // namespace

const Twin& twin() {
  static const Twin found = [] {
    void* const handle = dlopen(nccl_twin_path().c_str(), RTLD_NOW | RTLD_LOCAL);
    // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread loads libraries meanwhile
    LS_CHECK(handle != nullptr, "{}", dlerror());
    Twin made;
    find_in_twin(handle, "twin_reset", made.reset);
    find_in_twin(handle, "twin_set_version", made.set_version);
    find_in_twin(handle, "twin_violations", made.violations);
    find_in_twin(handle, "twin_stream_create", made.stream_create);
    find_in_twin(handle, "twin_stream_destroy", made.stream_destroy);
    find_in_twin(handle, "twin_stream_synchronize", made.stream_synchronize);
    find_in_twin(handle, "twin_stream_run", made.stream_run);
    find_in_twin(handle, "twin_stream_wait", made.stream_wait);
    find_in_twin(handle, "twin_event_create", made.event_create);
    find_in_twin(handle, "twin_event_destroy", made.event_destroy);
    find_in_twin(handle, "twin_event_record", made.event_record);
    find_in_twin(handle, "twin_event_passed", made.event_passed);
    return made;
  }();
  return found;
}

const NcclLibrary& twin_library() {
  static const NcclLibrary library(nccl_twin_path().string());
  return library;
}

void reset_twin() { twin().reset(); }

TwinStreams::TwinStreams() : compute_(twin().stream_create()), before_(twin().event_create()) {}

TwinStreams::~TwinStreams() {
  twin().stream_destroy(compute_);
  for (void* stream : streams_) twin().stream_destroy(stream);
  for (void* event : events_) twin().event_destroy(event);
  twin().event_destroy(before_);
}

void TwinStreams::compute(std::function<void()> function) {
  twin().stream_run(compute_, call_and_delete, new std::function<void()>(std::move(function)));
}

void TwinStreams::finish_computing() { twin().stream_synchronize(compute_); }

LinkStreams::Stream TwinStreams::add_stream() {
  streams_.push_back(twin().stream_create());
  return streams_.back();
}

LinkStreams::Mark TwinStreams::add_mark() {
  events_.push_back(twin().event_create());
  return events_.back();
}

std::byte* TwinStreams::scratch(std::int64_t bytes) {
  scratch_.emplace_back(static_cast<std::size_t>(bytes));
  return scratch_.back().data();
}

void TwinStreams::after_compute(Stream stream) {
  twin().event_record(before_, compute_);
  twin().stream_wait(stream, before_);
}

std::vector<std::exception_ptr> run_nccl_ranks(int ranks, const LinkOptions& options,
                                               const std::function<void(NcclRank)>& body,
                                               const NcclOptions* nccl) {
  reset_twin();
  ThreadHub hub(ranks);
  return run_thread_ranks(hub, options, [&](MessageLink& host) {
    NcclOptions all;
    all.lanes = all_lanes(ranks);
    all.collectives = true;
    all.timeout_seconds = options.timeout_seconds;
    auto streams = std::make_unique<TwinStreams>();
    TwinStreams& own = *streams;
    NcclLink link(twin_library(), std::move(streams), host, nccl == nullptr ? all : *nccl);
    body({host, own, link});
    link.close();
  });
}

std::string what_was_thrown(const std::exception_ptr& why) {
  if (why == nullptr) return "nothing";
  try {
    std::rethrow_exception(why);
  } catch (const RankFailed& e) {
    return fmt::format("RankFailed {}: {}", e.rank(), e.what());
  } catch (const InternalError& e) {
    return fmt::format("InternalError: {}", e.what());
  } catch (const Error& e) {
    return fmt::format("Error: {}", e.what());
  } catch (const std::exception& e) {
    return e.what();
  }
}

}  // namespace longstride::comm
