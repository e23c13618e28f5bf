#include "device/cuda/activity.h"

#if __has_include(<cupti.h>)

#include <cupti.h>
#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/trace_spans.h"
#include "device/cuda/loaded_library.h"

namespace longstride::cuda {
namespace {

constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                         CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET};
constexpr std::size_t kBufferBytes = std::size_t{8} << 20;
constexpr std::size_t kAlignment = 8;                       // CUPTI requires it of buffers
constexpr std::size_t kMostRecords = std::size_t{1} << 24;  // under 1 GiB

// CUPTI only ever appends fields to its records.
#if CUPTI_API_VERSION >= 130000
using Kernel = CUpti_ActivityKernel10;
#else
using Kernel = CUpti_ActivityKernel9;
#endif

void check(CUptiResult status, const char* call) {
  LS_CHECK(status == CUPTI_SUCCESS, "{}: CUPTI error {}", call, static_cast<int>(status));
}
#define LS_CUPTI(name, ...) check(cupti_library().find<decltype(name)>(#name)(__VA_ARGS__), #name)

// CUPTI returns buffers on a thread of its own, to plain functions: they share this with the
// recorder.
struct Records {
  std::mutex mutex;
  std::vector<Activity> all;
  std::int64_t dropped = 0;
  std::map<const char*, std::string> readable;  // by the mangled name's address, which is stable
};
Records& records() {
  static Records all;
  return all;
}

// "void f<float>(args)" as "f<float>".
std::string readable_name(const char* mangled) {
  int status = 0;
  char* text = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
  std::string name = status == 0 ? text : mangled;
  std::free(text);
  int depth = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '<') ++depth;
    if (name[i] == '>') --depth;
    if (name[i] == '(' && depth == 0 && name.compare(i, 11, "(anonymous ") != 0) {
      name.resize(i);
      break;
    }
  }
  return name.starts_with("void ") ? name.substr(5) : name;
}

Activity activity_of(const CUpti_ActivityMemcpy6& c) {
  Activity a{Activity::Kind::kCopy,
             "copy on the device",
             c.streamId,
             c.start,
             c.end,
             static_cast<std::int64_t>(c.bytes)};
  if (c.copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD) {
    a.kind = Activity::Kind::kCopyFromHost;
    a.name = "copy to the device";
  } else if (c.copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOH) {
    a.kind = Activity::Kind::kCopyToHost;
    a.name = "copy to the host";
  }
  return a;
}

void add(const Activity& activity) {
  Records& r = records();
  const bool has_times = activity.begin_ns != 0 && activity.end_ns >= activity.begin_ns;
  if (has_times && r.all.size() < kMostRecords)
    r.all.push_back(activity);
  else
    ++r.dropped;
}

void add(const CUpti_Activity* record) {
  switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
      const auto* k = reinterpret_cast<const Kernel*>(record);
      auto [found, fresh] = records().readable.try_emplace(k->name);
      if (fresh) found->second = readable_name(k->name);
      return add({Activity::Kind::kKernel, found->second, k->streamId, k->start, k->end});
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      return add(activity_of(*reinterpret_cast<const CUpti_ActivityMemcpy6*>(record)));
    case CUPTI_ACTIVITY_KIND_MEMSET: {
      const auto* f = reinterpret_cast<const CUpti_ActivityMemset4*>(record);
      return add({Activity::Kind::kFill, "fill", f->streamId, f->start, f->end,
                  static_cast<std::int64_t>(f->bytes)});
    }
    default:
      return;
  }
}

std::uint64_t CUPTIAPI clock_ns() { return trace_clock_ns(); }

void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most_records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(kAlignment, kBufferBytes));
  *bytes = *buffer == nullptr ? 0 : kBufferBytes;
  *most_records = 0;  // as many as fit
}

void CUPTIAPI take_buffer(CUcontext context, std::uint32_t queue, std::uint8_t* buffer, std::size_t,
                          std::size_t bytes) {
  auto* const next =
      cupti_library().find<decltype(cuptiActivityGetNextRecord)>("cuptiActivityGetNextRecord");
  auto* const count_dropped = cupti_library().find<decltype(cuptiActivityGetNumDroppedRecords)>(
      "cuptiActivityGetNumDroppedRecords");
  const std::lock_guard lock(records().mutex);
  CUpti_Activity* record = nullptr;
  while (next(buffer, bytes, &record) == CUPTI_SUCCESS) add(record);
  std::size_t dropped = 0;  // since the last query
  if (count_dropped(context, queue, &dropped) == CUPTI_SUCCESS)
    records().dropped += static_cast<std::int64_t>(dropped);
  std::free(buffer);
}

class CuptiRecorder final : public ActivityRecorder {
 public:
  CuptiRecorder() {
    LS_CUPTI(cuptiActivityRegisterCallbacks, give_buffer, take_buffer);
    // CUPTI records kernels in GPU time and converts it to this clock.
    LS_CUPTI(cuptiActivityRegisterTimestampCallback, clock_ns);
    take();
    begin_ns_ = trace_clock_ns();
    try {
      for (const CUpti_ActivityKind kind : kKinds) LS_CUPTI(cuptiActivityEnable, kind);
    } catch (...) {
      disable();
      throw;
    }
  }
  CuptiRecorder(const CuptiRecorder&) = delete;
  CuptiRecorder& operator=(const CuptiRecorder&) = delete;
  ~CuptiRecorder() override { disable(); }

  ActivityLog finish() override {
    LS_CUPTI(cuptiActivityFlushAll, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    disable();
    ActivityLog log = take();
    std::erase_if(log.activities, [&](const Activity& a) { return a.begin_ns < begin_ns_; });
    std::sort(log.activities.begin(), log.activities.end(),
              [](const Activity& a, const Activity& b) { return a.begin_ns < b.begin_ns; });
    return log;
  }

 private:
  // Disabling a kind that is not enabled is harmless.
  static void disable() {
    auto* const disable_kind =
        cupti_library().find<decltype(cuptiActivityDisable)>("cuptiActivityDisable");
    for (const CUpti_ActivityKind kind : kKinds) disable_kind(kind);
  }
  static ActivityLog take() {
    const std::lock_guard lock(records().mutex);
    return {std::exchange(records().all, {}), std::exchange(records().dropped, 0)};
  }

  std::uint64_t begin_ns_ = 0;
};

}  // namespace

std::unique_ptr<ActivityRecorder> record_activity() {
  if (!cupti_library().available()) return nullptr;
  try {
    return std::make_unique<CuptiRecorder>();
  } catch (const std::exception& e) {
    log_warning("{} (is another profiler attached?)", e.what());
    return nullptr;
  }
}

}  // namespace longstride::cuda

#else

namespace longstride::cuda {
std::unique_ptr<ActivityRecorder> record_activity() { return nullptr; }
}  // namespace longstride::cuda

#endif
