// One trace file of all ranks of a run: a process of the trace is a rank. Their clocks differ where
// their hosts do, so all times are written by rank 0's.
//
// All ranks of the link call these, in the same order.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "comm/message_link.h"
#include "observe/trace_file.h"

namespace longstride {

// Nanoseconds to add to this rank's trace clock for rank 0's: of some round trips, by the shortest.
// What lies within the error of the measurement is 0, as between ranks of one host.
// `clock` is this rank's.
std::int64_t measure_clock_offset(comm::Link& link,
                                  const std::function<std::uint64_t()>& clock = trace_clock_ns);

// Rank 0 writes the file, of what all have recorded, as write_trace does; it gets the others' rows
// as text, a piece at a time. `offset_ns` is of measure_clock_offset. Rank 0 calls `check` first.
// Throws Error on rank 0 if that does, or if the file cannot be written; the link stays usable.
// Returns the number of events of all ranks.
TraceCounts write_rank_traces(comm::MessageLink& link, const std::filesystem::path& path,
                              const Trace& mine, std::int64_t offset_ns,
                              const std::function<void()>& check = nullptr);

}  // namespace longstride
