#include "device/cuda/activity.h"

#if __has_include(<cupti.h>)

#include <cupti.h>
#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>

#include "base/error.h"
#include "base/log.h"
#include "device/cuda/loaded_library.h"

namespace longstride::cuda {
namespace {

constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                         CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET};
constexpr std::size_t kBufferBytes = std::size_t{8} << 20;
constexpr std::size_t kAlignment = 8;  // what CUPTI asks of a buffer

// Fields are only ever added at the end.
#if CUPTI_API_VERSION >= 130000
using Kernel = CUpti_ActivityKernel10;
#else
using Kernel = CUpti_ActivityKernel9;
#endif

void check(CUptiResult status, const char* call) {
  LS_CHECK(status == CUPTI_SUCCESS, "{}: CUPTI error {}", call, static_cast<int>(status));
}
#define LS_CUPTI(name, ...) check(cupti_library().find<decltype(name)>(#name)(__VA_ARGS__), #name)

// CUPTI hands buffers back from a thread of its own and to plain functions: this is where they meet
// the recorder.
struct Records {
  std::mutex mutex;
  std::vector<Activity> all;
  std::map<const char*, std::string> readable;  // names by their address, which CUPTI keeps
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

const char* direction(std::uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
      return "copy to the device";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
      return "copy to the host";
    default:
      return "copy on the device";
  }
}

void add(const CUpti_Activity* record) {
  Records& r = records();
  switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
      const auto* k = reinterpret_cast<const Kernel*>(record);
      auto [found, fresh] = r.readable.try_emplace(k->name);
      if (fresh) found->second = readable_name(k->name);
      r.all.push_back({Activity::Kind::kKernel, found->second, k->streamId, k->start, k->end});
      return;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      const auto* c = reinterpret_cast<const CUpti_ActivityMemcpy6*>(record);
      r.all.push_back(
          {Activity::Kind::kCopy, direction(c->copyKind), c->streamId, c->start, c->end});
      return;
    }
    case CUPTI_ACTIVITY_KIND_MEMSET: {
      const auto* f = reinterpret_cast<const CUpti_ActivityMemset4*>(record);
      r.all.push_back({Activity::Kind::kFill, "fill", f->streamId, f->start, f->end});
      return;
    }
    default:
      return;
  }
}

void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most_records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(kAlignment, kBufferBytes));
  *bytes = *buffer == nullptr ? 0 : kBufferBytes;
  *most_records = 0;  // as many as fit
}

void CUPTIAPI take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t,
                          std::size_t bytes) {
  auto* const next =
      cupti_library().find<decltype(cuptiActivityGetNextRecord)>("cuptiActivityGetNextRecord");
  const std::lock_guard lock(records().mutex);
  CUpti_Activity* record = nullptr;
  while (next(buffer, bytes, &record) == CUPTI_SUCCESS) add(record);
  std::free(buffer);
}

class CuptiRecorder final : public ActivityRecorder {
 public:
  CuptiRecorder() {
    LS_CUPTI(cuptiActivityRegisterCallbacks, give_buffer, take_buffer);
    for (const CUpti_ActivityKind kind : kKinds) LS_CUPTI(cuptiActivityEnable, kind);
    LS_CUPTI(cuptiGetTimestamp, &begin_ns_);
  }
  CuptiRecorder(const CuptiRecorder&) = delete;
  CuptiRecorder& operator=(const CuptiRecorder&) = delete;
  ~CuptiRecorder() override = default;

  std::vector<Activity> finish() override {
    LS_CUPTI(cuptiActivityFlushAll, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    for (const CUpti_ActivityKind kind : kKinds) LS_CUPTI(cuptiActivityDisable, kind);
    std::vector<Activity> all;
    {
      const std::lock_guard lock(records().mutex);
      all.swap(records().all);
    }
    std::erase_if(all, [&](const Activity& a) { return a.begin_ns < begin_ns_; });
    std::sort(all.begin(), all.end(),
              [](const Activity& a, const Activity& b) { return a.begin_ns < b.begin_ns; });
    return all;
  }

 private:
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
