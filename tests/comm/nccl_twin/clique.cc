#include "tests/comm/nccl_twin/clique.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace nccl_twin {

using namespace longstride::comm::nccl;  // NOLINT(google-build-using-namespace)

World& world() {
  static auto* const made = new World;  // streams may outlive what ends at exit
  return *made;
}

bool Communicator::failed() const { return state != kSuccess && state != kInProgress; }

bool Clique::complete() const {
  return std::ranges::all_of(members, [](const Communicator* one) { return one != nullptr; });
}

std::string Clique::left_over() const {
  for (const auto& [ranks, pair] : pairs)
    if (!pair.sends.empty() || !pair.receives.empty())
      return fmt::format("{} sends and {} receives from rank {} to rank {} are left over",
                         pair.sends.size(), pair.receives.size(), ranks.first, ranks.second);
  return "";
}

Result violate(Communicator* one, Result error, const std::string& text) {
  World& all = world();
  all.violations += text + "\n";
  if (one != nullptr) {
    one->state = error;
    one->last_error = text;
  }
  all.changed.notify_all();
  return error;
}

namespace {

// Both ends of a message are there.
void meet(Clique& clique, int from, int to) {
  Clique::Pair& pair = clique.pairs[{from, to}];
  while (!pair.sends.empty() && !pair.receives.empty()) {
    Operation& send = *pair.sends.front();
    Operation& receive = *pair.receives.front();
    pair.sends.pop_front();
    pair.receives.pop_front();
    if (send.count != receive.count || send.type != receive.type) {
      const std::string text = fmt::format(
          "rank {} sends {} of type {} to rank {}, which expects {} of type {}", from, send.count,
          static_cast<int>(send.type), to, receive.count, static_cast<int>(receive.type));
      violate(clique.members[static_cast<std::size_t>(from)], kInvalidUsage, text);
      violate(clique.members[static_cast<std::size_t>(to)], kInvalidUsage, text);
      return;
    }
    std::memcpy(receive.to, send.from, send.count);
    send.done = receive.done = true;
  }
}

void arrive(Communicator& one, Operation& mine) {
  Clique& clique = *one.clique;
  Collective& collective = clique.collectives[one.collectives++];
  collective.arrived.resize(static_cast<std::size_t>(clique.size));
  if (collective.first < 0) collective.first = one.rank;
  collective.arrived[static_cast<std::size_t>(one.rank)] = &mine;
  const Operation& other = *collective.arrived[static_cast<std::size_t>(collective.first)];
  if (mine.peer != other.peer || mine.count != other.count || mine.type != other.type) {
    const std::string text = fmt::format(
        "collective {}: rank {} broadcasts {} of type {} from rank {}, rank {} broadcasts {} of "
        "type {} from rank {}",
        one.collectives, collective.first, other.count, static_cast<int>(other.type), other.peer,
        one.rank, mine.count, static_cast<int>(mine.type), mine.peer);
    violate(clique.members[static_cast<std::size_t>(collective.first)], kInvalidUsage, text);
    violate(&one, kInvalidUsage, text);
    return;
  }
  if (std::ranges::count(collective.arrived, nullptr) > 0) return;
  const Operation& root = *collective.arrived[static_cast<std::size_t>(mine.peer)];
  for (Operation* each : collective.arrived) {
    if (each->to != root.from) std::memcpy(each->to, root.from, mine.count);
    each->done = true;
  }
}

// The ranks that one waits for in what it runs now.
std::vector<int> awaited(const Communicator& one) {
  std::vector<int> ranks;
  if (one.running == nullptr || one.failed()) return ranks;
  for (const Operation& each : *one.running) {
    if (each.done) continue;
    if (each.kind != Kind::kBroadcast) {
      ranks.push_back(each.peer);
      continue;
    }
    const Collective& collective = one.clique->collectives[one.collectives - 1];
    for (int r = 0; r < one.clique->size; ++r)
      if (collective.arrived[static_cast<std::size_t>(r)] == nullptr) ranks.push_back(r);
  }
  return ranks;
}

// Follows who waits for whom. What a communicator runs ends as a whole before the next begins, so a
// circle never ends.
bool finds_circle(const Clique& clique, int at, std::vector<int>& path) {
  const auto seen = std::ranges::find(path, at);
  if (seen != path.end()) {
    path.erase(path.begin(), seen);
    return true;
  }
  path.push_back(at);
  const Communicator* const one = clique.members[static_cast<std::size_t>(at)];
  for (const int next : awaited(*one))
    if (finds_circle(clique, next, path)) return true;
  path.pop_back();
  return false;
}

void look_for_circle(Communicator& one) {
  std::vector<int> path;
  if (!finds_circle(*one.clique, one.rank, path)) return;
  std::string text = "deadlock: ";
  for (const int rank : path) text += fmt::format("rank {} waits for ", rank);
  text += fmt::format("rank {}; what must run at the same time belongs in one group", path.front());
  for (const int rank : path)
    violate(one.clique->members[static_cast<std::size_t>(rank)], kInvalidUsage, text);
}

}  // namespace

void run_kernel(Communicator& one, std::vector<Operation> operations) {
  World& all = world();
  std::unique_lock lock(all.mutex);
  Clique& clique = *one.clique;
  if (!one.ended && !one.failed()) {
    one.running = &operations;
    for (Operation& each : operations) {
      const int sender = each.kind == Kind::kSend ? one.rank : each.peer;
      const int receiver = each.kind == Kind::kSend ? each.peer : one.rank;
      if (each.kind == Kind::kBroadcast) {
        arrive(one, each);
      } else {
        Clique::Pair& pair = clique.pairs[{sender, receiver}];
        (each.kind == Kind::kSend ? pair.sends : pair.receives).push_back(&each);
        meet(clique, sender, receiver);
      }
    }
    look_for_circle(one);
    all.changed.notify_all();
    all.changed.wait(lock, [&] {
      return one.ended || one.failed() ||
             std::ranges::all_of(operations, [](const Operation& each) { return each.done; });
    });
    one.running = nullptr;
    for (auto& [ranks, pair] : clique.pairs)
      for (Operation& each : operations) {
        std::erase(pair.sends, &each);
        std::erase(pair.receives, &each);
      }
    for (auto& [number, collective] : clique.collectives)
      for (Operation& each : operations)
        std::ranges::replace(collective.arrived, &each, static_cast<Operation*>(nullptr));
  }
  --one.kernels;
  all.changed.notify_all();
}

}  // namespace nccl_twin
