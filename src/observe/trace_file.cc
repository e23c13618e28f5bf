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
// Identify a trace of ours.
constexpr std::string_view kBeginning = "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"title\":",
                           kAfterTitle = ",\"dropped_spans\":";

TraceTrack track_of(const Activity& a, std::uint32_t computing) {
  if (a.queue != computing && a.kind == Activity::Kind::kCopyFromHost) return TraceTrack::kFromHost;
  if (a.queue != computing && a.kind == Activity::Kind::kCopyToHost) return TraceTrack::kToHost;
  return TraceTrack::kCompute;
}

// Any bytes as a JSON string.
std::string json_string(std::string_view text) { return dump_json(Json(std::string(text))); }

}  // namespace

class TraceRows::Writer {
 public:
  Writer(const TraceProcess& process, const TextSink& sink) : process_(process), sink_(sink) {}

  void begin() {
    add("{}{{\"ph\":\"M\",\"pid\":{},\"name\":\"process_name\",\"args\":{{\"name\":{}}}}}",
        process_.number == 0 ? "" : ",\n", pid(), json_string(process_.name));
    add(",\n{{\"ph\":\"M\",\"pid\":{},\"name\":\"process_sort_index\",\"args\":{{\"sort_index\":{}}"
        "}}}",
        pid(), process_.number);
  }

  void name_row(TraceTrack track, int row) {
    const int thread = thread_of(track, row);
    const std::string name =
        row == 0 ? name_of(track) : fmt::format("{} {}", name_of(track), row + 1);
    add(",\n{{\"ph\":\"M\",\"pid\":{},\"tid\":{},\"name\":\"thread_name\",\"args\":{{\"name\":{}}}}"
        "}",
        pid(), thread, json_string(name));
    // Rows of a track stay together.
    add(",\n{{\"ph\":\"M\",\"pid\":{},\"tid\":{},\"name\":\"thread_sort_index\",\"args\":{{\"sort_"
        "index\":{}}}}}",
        pid(), thread, static_cast<int>(track) * 1000 + row);
  }

  void write(TraceTrack track, const Event& e) {
    const std::uint64_t ts = e.begin_ns - process_.first_ns, duration = e.end_ns - e.begin_ns;
    add(",\n{{\"ph\":\"X\",\"pid\":{},\"tid\":{},\"ts\":{}.{:03},\"dur\":{}.{:03},\"name\":", pid(),
        thread_of(track, e.row), ts / 1000, ts % 1000, duration / 1000, duration % 1000);
    if (e.span != nullptr)
      add("{}", json_string(text_of(e.span->name)));
    else
      add("{}", activity_name(e.activity->name));
    const std::int64_t bytes = e.span != nullptr ? e.span->name.bytes : e.activity->bytes;
    if (bytes > 0) add(",\"args\":{{\"bytes\":{}}}", bytes);
    add("}}");
  }

  void flush() {
    sink_(std::string_view(block_.data(), block_.size()));
    block_.clear();
  }

 private:
  int pid() const { return process_.number + 1; }
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

  const TraceProcess& process_;
  const TextSink& sink_;
  fmt::memory_buffer block_;
  std::unordered_map<std::string_view, std::string> names_;
};

TraceRows::TraceRows(const Trace& trace) {
  const auto add = [&](TraceTrack to, const Event& event) {
    tracks_.at(static_cast<std::size_t>(to)).events.push_back(event);
  };
  for (const Span& s : trace.host.spans) add(s.track, {s.begin_ns, s.end_ns, &s, nullptr});
  const std::uint32_t computing = computing_queue(trace.device.activities);
  for (const Activity& a : trace.device.activities)
    add(track_of(a, computing), {a.begin_ns, a.end_ns, nullptr, &a});
  for (Track& track : tracks_) place_in_rows(track);
}

// Viewers nest the events of a row by their times, so a row must not hold two that only overlap.
void TraceRows::place_in_rows(Track& track) {
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

std::uint64_t TraceRows::first_ns() const {
  std::uint64_t first = UINT64_MAX;
  for (const Track& track : tracks_)
    if (!track.events.empty()) first = std::min(first, track.events.front().begin_ns);
  return first;
}

void TraceRows::write(const TraceProcess& process, const TextSink& sink) const {
  Writer writer(process, sink);
  writer.begin();
  for (std::size_t i = 0; i < tracks_.size(); ++i)
    for (int row = 0; row < tracks_.at(i).rows; ++row)
      writer.name_row(static_cast<TraceTrack>(i), row);
  for (std::size_t i = 0; i < tracks_.size(); ++i)
    for (const Event& event : tracks_.at(i).events) writer.write(static_cast<TraceTrack>(i), event);
  writer.flush();
}

TraceCounts& TraceCounts::operator+=(const TraceCounts& more) {
  spans += more.spans;
  activities += more.activities;
  dropped_spans += more.dropped_spans;
  dropped_activities += more.dropped_activities;
  return *this;
}

TraceCounts counts_of(const Trace& trace) {
  return {std::ssize(trace.host.spans), std::ssize(trace.device.activities), trace.host.dropped,
          trace.device.dropped};
}

std::string trace_head(const std::string& title, const TraceCounts& counts) {
  return fmt::format("{}{}{}{},\"dropped_device_records\":{}}},\"traceEvents\":[\n", kBeginning,
                     json_string(title), kAfterTitle, counts.dropped_spans,
                     counts.dropped_activities);
}

std::string trace_end() { return "\n]}\n"; }

bool begins_as_trace(std::string_view head) {
  return head.starts_with(kBeginning) && head.find(kAfterTitle) != std::string_view::npos;
}

void write_trace(const std::filesystem::path& path, const Trace& trace) {
  const TraceRows rows(trace);
  write_file_atomic(path, [&](FileWriter& file) {
    file.write(trace_head(trace.title, counts_of(trace)));
    rows.write({.name = trace.title, .first_ns = rows.first_ns()},
               [&](std::string_view text) { file.write(text); });
    file.write(trace_end());
  });
}

}  // namespace longstride
