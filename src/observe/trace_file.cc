#include "observe/trace_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/files.h"
#include "base/json.h"
#include "observe/activity_summary.h"

namespace longstride {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{1} << 20;  // written at once
constexpr std::size_t kLongestName = 120;  // libraries' kernels have names of kilobytes
constexpr int kProcess = 1;
// Identify a trace of ours.
constexpr std::string_view kBeginning = "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"title\":",
                           kAfterTitle = ",\"dropped_spans\":";

// One of the two is null.
struct Event {
  std::uint64_t begin_ns = 0, end_ns = 0;
  const Span* span = nullptr;
  const Activity* activity = nullptr;
  int row = 0;
};

struct Track {
  std::vector<Event> events;
  int rows = 1;
};
using Tracks = std::array<Track, kTraceTracks>;

TraceTrack track_of(const Activity& a, std::uint32_t computing) {
  if (a.queue != computing && a.kind == Activity::Kind::kCopyFromHost) return TraceTrack::kFromHost;
  if (a.queue != computing && a.kind == Activity::Kind::kCopyToHost) return TraceTrack::kToHost;
  return TraceTrack::kCompute;
}

// Viewers nest the events of a row by their times, so a row must not hold two that only overlap.
void place_in_rows(Track& track) {
  std::stable_sort(track.events.begin(), track.events.end(), [](const Event& a, const Event& b) {
    return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.end_ns > b.end_ns;
  });
  std::vector<std::vector<std::uint64_t>> open(1);  // per row, the ends of open events
  for (Event& event : track.events) {
    for (event.row = 0;; ++event.row) {
      if (static_cast<std::size_t>(event.row) == open.size()) open.emplace_back();
      std::vector<std::uint64_t>& ends = open[static_cast<std::size_t>(event.row)];
      while (!ends.empty() && ends.back() <= event.begin_ns) ends.pop_back();
      if (!ends.empty() && ends.back() < event.end_ns) continue;
      ends.push_back(event.end_ns);
      break;
    }
  }
  track.rows = static_cast<int>(open.size());
}

Tracks tracks_of(const Trace& trace) {
  Tracks tracks;
  const auto add = [&](TraceTrack to, const Event& event) {
    tracks.at(static_cast<std::size_t>(to)).events.push_back(event);
  };
  for (const Span& s : trace.host.spans) add(s.track, {s.begin_ns, s.end_ns, &s, nullptr});
  const std::uint32_t computing = computing_queue(trace.device.activities);
  for (const Activity& a : trace.device.activities)
    add(track_of(a, computing), {a.begin_ns, a.end_ns, nullptr, &a});
  for (Track& track : tracks) place_in_rows(track);
  return tracks;
}

// Any bytes as a JSON string.
std::string json_string(std::string_view text) { return dump_json(Json(std::string(text))); }

class Writer {
 public:
  Writer(FileWriter& file, std::uint64_t first_ns) : file_(file), first_ns_(first_ns) {}

  void begin(const Trace& trace) {
    add("{}{}{}{},\"dropped_device_records\":{}}},\"traceEvents\":[\n", kBeginning,
        json_string(trace.title), kAfterTitle, trace.host.dropped, trace.device.dropped);
    add("{{\"ph\":\"M\",\"pid\":{},\"name\":\"process_name\",\"args\":{{\"name\":{}}}}}", kProcess,
        json_string(trace.title));
  }

  void name_row(TraceTrack track, int row) {
    const int thread = thread_of(track, row);
    const std::string name =
        row == 0 ? name_of(track) : fmt::format("{} {}", name_of(track), row + 1);
    add(",\n{{\"ph\":\"M\",\"pid\":{},\"tid\":{},\"name\":\"thread_name\",\"args\":{{\"name\":{}}}}"
        "}",
        kProcess, thread, json_string(name));
    // Rows of a track stay together.
    add(",\n{{\"ph\":\"M\",\"pid\":{},\"tid\":{},\"name\":\"thread_sort_index\",\"args\":{{\"sort_"
        "index\":{}}}}}",
        kProcess, thread, static_cast<int>(track) * 1000 + row);
  }

  void write(TraceTrack track, const Event& e) {
    const std::uint64_t ts = e.begin_ns - first_ns_, duration = e.end_ns - e.begin_ns;
    add(",\n{{\"ph\":\"X\",\"pid\":{},\"tid\":{},\"ts\":{}.{:03},\"dur\":{}.{:03},\"name\":",
        kProcess, thread_of(track, e.row), ts / 1000, ts % 1000, duration / 1000, duration % 1000);
    if (e.span != nullptr)
      add("{}", json_string(text_of(e.span->name)));
    else
      add("{}", activity_name(e.activity->name));
    const std::int64_t bytes = e.span != nullptr ? e.span->name.bytes : e.activity->bytes;
    if (bytes > 0) add(",\"args\":{{\"bytes\":{}}}", bytes);
    add("}}");
  }

  void end() {
    add("\n]}}\n");
    flush();
  }

 private:
  static int thread_of(TraceTrack track, int row) {
    return 1 + static_cast<int>(track) + kTraceTracks * row;
  }

  // Cached: a few hundred names occur a million times.
  const std::string& activity_name(std::string_view name) {
    const auto [found, fresh] = names_.try_emplace(name);
    if (fresh) found->second = json_string(name.substr(0, kLongestName));
    return found->second;
  }

  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(block_), format, std::forward<Args>(args)...);
    if (block_.size() >= kBlockBytes) flush();
  }
  void flush() {
    file_.write(std::string_view(block_.data(), block_.size()));
    block_.clear();
  }

  FileWriter& file_;
  std::uint64_t first_ns_;
  fmt::memory_buffer block_;
  std::unordered_map<std::string_view, std::string> names_;
};

}  // namespace

bool begins_as_trace(std::string_view head) {
  return head.starts_with(kBeginning) && head.find(kAfterTitle) != std::string_view::npos;
}

void write_trace(const std::filesystem::path& path, const Trace& trace) {
  const Tracks tracks = tracks_of(trace);
  std::uint64_t first_ns = UINT64_MAX;
  for (const Track& track : tracks)
    if (!track.events.empty()) first_ns = std::min(first_ns, track.events.front().begin_ns);
  write_file_atomic(path, [&](FileWriter& file) {
    Writer writer(file, first_ns);
    writer.begin(trace);
    for (std::size_t i = 0; i < tracks.size(); ++i)
      for (int row = 0; row < tracks.at(i).rows; ++row)
        writer.name_row(static_cast<TraceTrack>(i), row);
    for (std::size_t i = 0; i < tracks.size(); ++i)
      for (const Event& event : tracks.at(i).events)
        writer.write(static_cast<TraceTrack>(i), event);
    writer.end();
  });
}

}  // namespace longstride
