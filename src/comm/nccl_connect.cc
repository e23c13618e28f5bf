// How a link over NCCL is opened, watched and closed.
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/threads.h"
#include "comm/control.h"
#include "comm/nccl_link.h"

namespace longstride::comm {
namespace {

Time after_seconds(double seconds) {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

std::vector<std::pair<int, int>> all_lanes(int ranks) {
  std::vector<std::pair<int, int>> lanes;
  // By distance, so that all ranks connect at the same time.
  for (int step = 0; step < ranks; ++step)
    for (int from = 0; from < ranks; ++from) lanes.emplace_back(from, (from + step) % ranks);
  return lanes;
}

std::vector<std::pair<int, int>> pipeline_lanes(int stages, int pipelines) {
  std::vector<std::pair<int, int>> lanes;
  const auto both_ways = [&](int a, int b) {  // in every pipeline
    for (int begin = 0; begin < stages * pipelines; begin += stages) {
      lanes.emplace_back(begin + a, begin + b);
      lanes.emplace_back(begin + b, begin + a);
    }
  };
  for (const int first : {0, 1})
    for (int a = first; a + 1 < stages; a += 2) both_ways(a, a + 1);
  if (stages > 2) both_ways(0, stages - 1);  // a tied embedding
  if (pipelines == 1) return lanes;
  for (const auto& [from, to] : all_lanes(pipelines))
    for (int stage = 0; stage < stages; ++stage)
      lanes.emplace_back(from * stages + stage, to * stages + stage);
  return lanes;
}

NcclLink::NcclLink(const NcclLibrary& library, std::unique_ptr<LinkStreams> streams,
                   MessageLink& beneath, const NcclOptions& options)
    : library_(library), streams_(std::move(streams)), beneath_(beneath) {
  try {
    connect(options);
    watcher_ = start_thread([this] { watch(); });
  } catch (...) {
    end_lanes(std::current_exception());
    beneath_.waits_elsewhere(-1);
    throw;
  }
}

NcclLink::~NcclLink() {
  stop_watching();
  end_lanes(nullptr);
  beneath_.waits_elsewhere(-1);
}

NcclLink::Lane& NcclLink::add_lane(int from, int to, std::string name) {
  Lane& made = lanes_.emplace_back();
  made.lane = std::make_unique<NcclLane>(library_, *streams_, std::move(name));
  made.from = from;
  made.to = to;
  return made;
}

// One lane after the other, in the same order everywhere: all ranks come to the first that none of
// them has.
void NcclLink::connect(const NcclOptions& options) {
  const int n = size(), me = rank();
  std::vector<std::pair<int, int>> wanted = options.lanes;
  if (options.collectives) wanted.emplace_back(-1, -1);
  const auto makes_id = [](std::pair<int, int> lane) { return std::max(lane.first, 0); };
  std::string mine;
  for (const auto& lane : wanted) {
    LS_CHECK(lane.first < n && lane.second < n, "a lane {} to {} of {}", lane.first, lane.second,
             n);
    if (makes_id(lane) != me) continue;
    nccl::UniqueId id{};
    library_.check(library_.calls().get_unique_id(&id), "listen for other ranks");
    mine.append(id.internal, sizeof(id));
  }
  const std::vector<std::string> ids = gather_texts(beneath_, mine);
  std::vector<std::size_t> used(ids.size(), 0);
  const auto most = static_cast<std::size_t>(n);
  std::byte* const scratch = streams_->scratch(2 * static_cast<std::int64_t>(most));
  for (const auto& [from, to] : wanted) {
    const auto maker = static_cast<std::size_t>(makes_id({from, to}));
    nccl::UniqueId id{};
    std::memcpy(id.internal, ids[maker].data() + sizeof(id) * used[maker]++, sizeof(id));
    const bool all = from < 0;
    if (!all && from != me && to != me) continue;
    LS_CHECK(all || !by_ranks_.contains({from, to}), "two lanes from {} to {}", from, to);
    std::string name = "all ranks";
    if (!all)
      name = fmt::format("rank {} on {} and rank {} on {}", from, beneath_.host(from), to,
                         beneath_.host(to));
    Lane& lane = add_lane(from, to, std::move(name));
    lane.peer = all ? (me + 1) % n : from == me ? to : from;
    if (all)
      all_ = &lane;
    else
      by_ranks_[{from, to}] = lanes_.size() - 1;
    const Time end = after_seconds(options.timeout_seconds);
    const int ranks = all ? n : from == to ? 1 : 2;
    lane.lane->join(id, all ? me : from == me ? 0 : 1, ranks);
    const auto settled = [&] { return lane.lane->settled(); };
    wait_until(settled, lane.peer, end);
    // The first message makes NCCL take what memory the connection needs.
    std::vector<Part> parts;
    const bool sends = all || from == me, receives = all || to == me;
    for (int peer = 0; peer < ranks; ++peer) {
      if (ranks == 2 && !all && peer == (from == me ? 0 : 1)) continue;
      if (receives) parts.push_back({false, peer, scratch + peer, 1});
      if (sends) parts.push_back({true, peer, scratch + n + peer, 1});
    }
    lane.lane->launch(parts);
    wait_until(settled, lane.peer, end);
    lane.lane->launched();
    wait_until([&] { return lane.lane->idle(); }, lane.peer, end);
  }
}

void NcclLink::close() {
  for (Lane& one : lanes_) {
    LS_CHECK(one.waiting.empty(), "a message of rank {} to itself was not matched", rank());
    wait_until([&] { return one.lane->idle(); }, one.peer);
  }
  stop_watching();
  for (Lane& one : lanes_) {
    bool asked = false;
    wait_until(
        [&] {
          if (!std::exchange(asked, true)) one.lane->finalize();
          return one.lane->settled();
        },
        one.peer);
    const std::lock_guard lock(mutex_);
    one.lane->destroy();
  }
  const std::lock_guard lock(mutex_);
  if (failure_ == nullptr) failure_ = std::make_exception_ptr(InternalError("the link is closed"));
}

void NcclLink::stop_watching() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  if (watcher_.joinable()) watcher_.join();
}

// The caller may be waiting for the device, which waits for a message that will never come.
void NcclLink::watch() {
  streams_->enter_thread();
  std::unique_lock lock(mutex_);
  while (!stop_ && failure_ == nullptr) {
    wake_.wait_for(lock, std::chrono::milliseconds(100), [this] { return stop_; });
    if (stop_ || failure_ != nullptr) return;
    std::exception_ptr why;
    try {
      int waits_for = -1;
      beneath_.throw_if_failed();
      const Time now = Clock::now();
      for (Lane& one : lanes_) {
        one.lane->settled();
        const std::uint64_t passed = one.lane->count_passed();
        if (std::exchange(one.passed, passed) != passed || passed == one.lane->launches())
          one.since = now;
        // A message has been under way for so long that the device may well wait for it.
        if (now - one.since > std::chrono::seconds(1) && one.peer != rank()) waits_for = one.peer;
      }
      if (!caller_waits_) beneath_.waits_elsewhere(waits_for);
    } catch (...) {
      why = std::current_exception();
    }
    lock.unlock();
    if (why != nullptr) {
      try {
        fail_by(why);
      } catch (...) {  // told at the caller's next call
      }
    }
    lock.lock();
  }
}

}  // namespace longstride::comm
