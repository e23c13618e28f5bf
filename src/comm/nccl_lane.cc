#include "comm/nccl_lane.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace longstride::comm {

NcclLane::NcclLane(const NcclLibrary& library, LinkStreams& streams, std::string name)
    : library_(library),
      streams_(streams),
      name_(std::move(name)),
      stream_(streams.add_stream()),
      marks_(kMarks) {
  std::ranges::generate(marks_, [&] { return streams.add_mark(); });
}

void NcclLane::join(const nccl::UniqueId& id, int rank, int ranks) {
  nccl::Config config;  // does not block
  const nccl::Result result = library_.calls().comm_init(&comm_, ranks, id, rank, &config);
  library_.check(result, "connect " + name_);
}

bool NcclLane::settled() {
  LS_CHECK(comm_ != nullptr, "the communicator of {} was ended", name_);
  nccl::Result state = nccl::kSuccess;
  library_.check(library_.calls().async_error(comm_, &state), "say how it stands", comm_);
  library_.check(state, "serve " + name_, comm_);
  return state == nccl::kSuccess;
}

void NcclLane::launch(std::span<const Part> parts) {
  streams_.after_compute(stream_);
  if (std::ranges::none_of(parts, [](const Part& part) { return part.bytes > 0; })) return;
  const nccl::Functions& calls = library_.calls();
  library_.check(calls.group_start(), "begin a group");
  // A group that was begun is ended, whatever happens in it.
  nccl::Result first = nccl::kSuccess;
  for (const Part& part : parts) {
    if (part.bytes == 0) continue;
    const auto count = static_cast<std::size_t>(part.bytes);
    const nccl::Result result =
        part.sends ? calls.send(part.data, count, nccl::kUint8, part.peer, comm_, stream_)
                   : calls.receive(part.data, count, nccl::kUint8, part.peer, comm_, stream_);
    if (first == nccl::kSuccess || first == nccl::kInProgress) first = result;
  }
  const nccl::Result ended = calls.group_end();
  library_.check(first, "begin a message between " + name_, comm_);
  library_.check(ended, "begin messages between " + name_, comm_);
}

void NcclLane::launch_broadcast(int root, void* data, std::int64_t bytes) {
  streams_.after_compute(stream_);
  if (bytes == 0) return;
  library_.check(library_.calls().broadcast(data, data, static_cast<std::size_t>(bytes),
                                            nccl::kUint8, root, comm_, stream_),
                 "begin a broadcast between " + name_, comm_);
}

std::uint64_t NcclLane::launched() {
  ++launched_;
  streams_.record(mark_of(launched_), stream_);
  return launched_;
}

bool NcclLane::has_passed(std::uint64_t number) {
  LS_CHECK(number <= launched_, "launch {} of {} between {}", number, launched_, name_);
  if (number <= passed_) return true;
  LS_CHECK(launched_ - number < kMarks, "launch {} of {}: its mark is gone", number, launched_);
  if (!streams_.passed(mark_of(number))) return false;
  passed_ = number;
  return true;
}

std::uint64_t NcclLane::count_passed() {
  while (passed_ < launched_ && has_passed(passed_ + 1)) continue;
  return passed_;
}

void NcclLane::compute_waits(std::uint64_t number) {
  if (!has_passed(number)) streams_.compute_waits(mark_of(number));
}

void NcclLane::finalize() {
  library_.check(library_.calls().comm_finalize(comm_), "disconnect " + name_, comm_);
}

void NcclLane::destroy() {
  library_.check(library_.calls().comm_destroy(std::exchange(comm_, nullptr)),
                 "disconnect " + name_);
}

void NcclLane::abort() noexcept {
  if (comm_ != nullptr) library_.calls().comm_abort(std::exchange(comm_, nullptr));
}

void NcclLane::drain() noexcept {
  try {
    streams_.synchronize(stream_);
  } catch (...) {  // the GPU is lost: nothing writes any more
  }
}

}  // namespace longstride::comm
