#include "observe/rank_trace.h"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <limits>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "comm/control.h"

namespace longstride {
namespace {

template <class T>
void send_control(comm::Link& link, int to, const T& value) {
  link.wait(link.start_send(to, comm::send_buffer(value), comm::Traffic::kControl));
}
template <class T>
T receive_control(comm::Link& link, int from) {
  T value{};
  link.wait(link.start_receive(from, comm::receive_buffer(value), comm::Traffic::kControl));
  return value;
}

using TraceClock = std::function<std::uint64_t()>;

// The offset against rank 0's clock, on the rank that asks.
std::int64_t ask_for_offset(comm::Link& link, int rounds, const TraceClock& clock) {
  std::int64_t offset = 0, shortest = std::numeric_limits<std::int64_t>::max();
  for (int i = 0; i < rounds; ++i) {
    const std::int64_t begin = static_cast<std::int64_t>(clock());
    send_control(link, 0, begin);
    const auto there = receive_control<std::int64_t>(link, 0);
    const std::int64_t end = static_cast<std::int64_t>(clock());
    if (end - begin >= shortest) continue;
    shortest = end - begin;
    offset = there - (begin + shortest / 2);
  }
  return std::abs(offset) <= (shortest + 1) / 2 ? 0 : offset;
}

// A text in pieces, ended by an empty one.
void send_piece(comm::Link& link, std::string_view text) {
  const auto size = static_cast<std::int64_t>(text.size());
  send_control(link, 0, size);
  if (size > 0) link.wait(link.start_send(0, {text.data(), size}, comm::Traffic::kControl));
}
void receive_pieces(comm::Link& link, int from, const TextSink& sink) {
  std::string text;
  while (const auto size = receive_control<std::int64_t>(link, from)) {
    text.resize(static_cast<std::size_t>(size));
    link.wait(link.start_receive(from, {text.data(), size}, comm::Traffic::kControl));
    sink(text);
  }
}

}  // namespace

std::int64_t measure_clock_offset(comm::Link& link, const TraceClock& clock) {
  constexpr int kRounds = 32;
  std::int64_t offset = 0;
  for (int rank = 1; rank < link.size(); ++rank) {
    if (link.rank() == rank) offset = ask_for_offset(link, kRounds, clock);
    for (int i = 0; i < kRounds && link.rank() == 0; ++i) {
      receive_control<std::int64_t>(link, rank);
      send_control(link, rank, static_cast<std::int64_t>(clock()));
    }
  }
  return offset;
}

TraceCounts write_rank_traces(comm::MessageLink& link, const std::filesystem::path& path,
                              const Trace& mine, std::int64_t offset_ns,
                              const std::function<void()>& check) {
  struct Facts {
    std::int64_t first_ns = 0;  // by rank 0's clock
    TraceCounts counts;
  };
  constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  const TraceRows rows(mine);
  const std::uint64_t own_first = rows.first_ns();
  std::int64_t first = kNever;
  TraceCounts counts;
  for (const Facts& one : comm::gather<Facts>(
           link,
           {own_first == UINT64_MAX ? kNever : static_cast<std::int64_t>(own_first) + offset_ns,
            counts_of(mine)})) {
    first = std::min(first, one.first_ns);
    counts += one.counts;
  }
  const int rank = link.rank();
  const TraceProcess process{rank, fmt::format("rank {} on {}", rank, link.host(rank)),
                             static_cast<std::uint64_t>(first - offset_ns)};
  if (rank != 0) {
    rows.write(process, [&](std::string_view text) { send_piece(link, text); });
    send_piece(link, "");
    return counts;
  }
  // The others' pieces must be received, whatever becomes of the file.
  int next = 1;
  const auto receive_all = [&](const TextSink& sink) {
    for (; next < link.size(); ++next) receive_pieces(link, next, sink);
  };
  try {
    if (check) check();
    write_file_atomic(path, [&](FileWriter& file) {
      file.write(trace_head(mine.title, counts));
      rows.write(process, [&](std::string_view text) { file.write(text); });
      std::exception_ptr failed;
      receive_all([&](std::string_view text) {
        if (failed) return;
        try {
          file.write(text);
        } catch (const Error&) {
          failed = std::current_exception();
        }
      });
      if (failed) std::rethrow_exception(failed);
      file.write(trace_end());
    });
  } catch (const Error&) {
    receive_all([](std::string_view) {});
    throw;
  }
  return counts;
}

}  // namespace longstride
