#include "comm/thread_link.h"

#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/threads.h"

namespace longstride::comm {

struct ThreadHub::State {
  struct Part {
    std::uint64_t request = 0;
    const std::byte* source = nullptr;
    std::byte* target = nullptr;
    std::int64_t bytes = 0;
  };
  struct Pair {
    std::deque<Part> sends, receives;
  };
  explicit State(int ranks)
      : size(ranks),
        notes(static_cast<std::size_t>(ranks)),
        frozen(static_cast<std::size_t>(ranks), false) {}

  const int size;
  std::mutex mutex;
  std::vector<std::deque<Wire::Arrived>> notes;  // by receiver
  std::map<std::pair<int, int>, Pair> pairs;     // by sender and receiver
  std::map<std::uint64_t, bool> done;            // by request
  std::uint64_t requests = 0;
  std::vector<bool> frozen;
  bool aborted = false;

  void match(int from, int to) {
    Pair& pair = pairs[{from, to}];
    while (!pair.sends.empty() && !pair.receives.empty()) {
      const Part send = pair.sends.front(), receive = pair.receives.front();
      pair.sends.pop_front();
      pair.receives.pop_front();
      LS_CHECK(send.bytes == receive.bytes, "a part of {} bytes meets one of {}", send.bytes,
               receive.bytes);
      std::memcpy(receive.target, send.source, static_cast<std::size_t>(send.bytes));
      done[send.request] = done[receive.request] = true;
    }
  }
};

namespace {

class ThreadWire final : public Wire {
 public:
  ThreadWire(std::shared_ptr<ThreadHub::State> state, int rank)
      : state_(std::move(state)), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return state_->size; }

  void send_note(int to, std::vector<std::byte> note) override {
    const std::lock_guard lock(state_->mutex);
    if (!frozen()) state_->notes[static_cast<std::size_t>(to)].push_back({rank_, std::move(note)});
  }
  int notes_under_way(int /*to*/) const override { return 0; }
  std::optional<Arrived> next_note() override {
    const std::lock_guard lock(state_->mutex);
    auto& mine = state_->notes[static_cast<std::size_t>(rank_)];
    if (frozen() || mine.empty()) return std::nullopt;
    Arrived first = std::move(mine.front());
    mine.pop_front();
    return first;
  }
  Request send(int to, const std::byte* data, std::int64_t bytes) override {
    const std::lock_guard lock(state_->mutex);
    return add(rank_, to, {0, data, nullptr, bytes});
  }
  Request receive(int from, std::byte* data, std::int64_t bytes) override {
    const std::lock_guard lock(state_->mutex);
    return add(from, rank_, {0, nullptr, data, bytes});
  }
  bool done(Request request) override {
    const std::lock_guard lock(state_->mutex);
    const auto found = state_->done.find(request);
    LS_CHECK(found != state_->done.end(), "request {} is unknown", request);
    if (frozen() || !found->second) return false;
    state_->done.erase(found);
    return true;
  }
  void cancel(Request request) override {
    const std::lock_guard lock(state_->mutex);
    state_->done.erase(request);
    const auto is_it = [request](const auto& part) { return part.request == request; };
    for (auto& [ranks, pair] : state_->pairs) {
      std::erase_if(pair.sends, is_it);
      std::erase_if(pair.receives, is_it);
    }
  }
  void close() override {}
  void abort(int /*status*/) override {
    const std::lock_guard lock(state_->mutex);
    state_->aborted = true;
  }

 private:
  bool frozen() const { return state_->frozen[static_cast<std::size_t>(rank_)]; }
  Request add(int from, int to, ThreadHub::State::Part part) {
    part.request = ++state_->requests;
    state_->done[part.request] = false;
    auto& pair = state_->pairs[{from, to}];
    (part.source != nullptr ? pair.sends : pair.receives).push_back(part);
    if (!frozen()) state_->match(from, to);
    return part.request;
  }

  std::shared_ptr<ThreadHub::State> state_;
  int rank_;
};

}  // namespace

ThreadHub::ThreadHub(int size) : state_(std::make_shared<State>(size)) {
  LS_CHECK(size > 0, "{} ranks", size);
}
ThreadHub::~ThreadHub() = default;

int ThreadHub::size() const { return state_->size; }

MakeWire ThreadHub::wire(int rank) {
  return [state = state_, rank] { return std::make_unique<ThreadWire>(state, rank); };
}

void ThreadHub::freeze(int rank) {
  const std::lock_guard lock(state_->mutex);
  state_->frozen[static_cast<std::size_t>(rank)] = true;
}

bool ThreadHub::aborted() const {
  const std::lock_guard lock(state_->mutex);
  return state_->aborted;
}

std::vector<std::exception_ptr> run_thread_ranks(ThreadHub& hub, const LinkOptions& options,
                                                 const std::function<void(MessageLink&)>& body) {
  std::vector<std::exception_ptr> thrown(static_cast<std::size_t>(hub.size()));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < hub.size(); ++rank)
    threads.push_back(start_thread([&, rank] {
      std::exception_ptr& why = thrown[static_cast<std::size_t>(rank)];
      try {
        MessageLink link(hub.wire(rank), options);
        try {
          body(link);
          link.close();
        } catch (const RankFailed&) {
          why = std::current_exception();
        } catch (const std::exception& e) {
          why = std::current_exception();
          link.fail(e.what(), 2);
        }
      } catch (...) {
        if (why == nullptr) why = std::current_exception();
      }
    }));
  join_all(threads);
  return thrown;
}

}  // namespace longstride::comm
