// The functions of NCCL.
#include "tests/comm/nccl_twin/twin.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tests/comm/nccl_twin/clique.h"
#include "tests/comm/nccl_twin/streams.h"

namespace nccl_twin {
namespace {

using longstride::comm::nccl::Comm;
using longstride::comm::nccl::Config;
using longstride::comm::nccl::kInProgress;
using longstride::comm::nccl::kInvalidArgument;
using longstride::comm::nccl::kInvalidUsage;
using longstride::comm::nccl::kSuccess;
using longstride::comm::nccl::UniqueId;

struct Asked {
  Communicator* one = nullptr;
  Operation operation;
  void* stream = nullptr;
};
thread_local int group_depth = 0;
thread_local std::vector<Asked> group;

Communicator* find(Comm* handle) {
  const auto* const wanted = reinterpret_cast<Communicator*>(handle);
  for (const auto& one : world().communicators)
    if (one.get() == wanted) return one.get();
  return nullptr;
}

// What any call on a communicator must keep to. Null if it does not; `error` says what it gets.
Communicator* usable(Comm* handle, const char* call, bool may_be_busy, bool in_group,
                     Result& error) {
  Communicator* const one = find(handle);
  error = kInvalidUsage;
  if (one == nullptr) {
    error = violate(nullptr, kInvalidArgument, fmt::format("{} of no communicator", call));
  } else if (one->ended) {
    violate(nullptr, error, fmt::format("{} of a communicator that has ended", call));
  } else if (group_depth > 0 && !in_group) {
    violate(one, error, fmt::format("{} within a group", call));
  } else if (one->failed()) {
    error = one->state;
    return call == std::string("ncclCommAbort") ? one : nullptr;
  } else if (!may_be_busy && (!one->joined || one->state == kInProgress)) {
    violate(one, error, fmt::format("{} while something is in progress", call));
  } else {
    return one;
  }
  return nullptr;
}

Result launch(std::vector<Asked> asked) {
  while (!asked.empty()) {
    Communicator& one = *asked.front().one;
    void* const stream = asked.front().stream;
    std::vector<Operation> operations;
    for (const Asked& each : asked) {
      if (each.one != &one) continue;
      if (each.stream != stream || (one.stream != nullptr && one.stream != stream))
        return violate(&one, kInvalidUsage, "messages of one communicator on two streams");
      operations.push_back(each.operation);
    }
    std::erase_if(asked, [&](const Asked& each) { return each.one == &one; });
    if (one.failed()) return one.state;
    one.stream = stream;
    one.state = kInProgress;
    one.launches_to_settle = 1;
    ++one.kernels;
    static_cast<Stream*>(stream)->add(
        [&one, operations = std::move(operations)] { run_kernel(one, operations); });
  }
  return kInProgress;
}

Result ask(Comm* handle, const char* call, Operation operation, void* stream) {
  const std::lock_guard lock(world().mutex);
  Result error = kSuccess;
  Communicator* const one = usable(handle, call, false, true, error);
  if (one == nullptr) return error;
  if (one->finalized) return violate(one, kInvalidUsage, fmt::format("{} after the end", call));
  if (operation.peer < 0 || operation.peer >= one->clique->size)
    return violate(one, kInvalidArgument,
                   fmt::format("{} with rank {} of {}", call, operation.peer, one->clique->size));
  if (operation.count == 0) return violate(one, kInvalidArgument, fmt::format("{} of 0", call));
  if (stream == nullptr || (operation.from == nullptr && operation.to == nullptr))
    return violate(one, kInvalidArgument, fmt::format("{} without stream or buffer", call));
  if (operation.type > longstride::comm::nccl::kUint8)
    return violate(one, kInvalidArgument, fmt::format("{} of another type than bytes", call));
  if (group_depth == 0) return launch({{one, operation, stream}});
  group.push_back({one, operation, stream});
  return kSuccess;
}

}  // namespace
}  // namespace nccl_twin

using nccl_twin::Clique;
using nccl_twin::Communicator;
using nccl_twin::Kind;
using nccl_twin::Result;
using nccl_twin::usable;
using nccl_twin::violate;
using nccl_twin::world;
using namespace longstride::comm::nccl;  // NOLINT(google-build-using-namespace)

#pragma GCC visibility push(default)
extern "C" {

void twin_reset() {
  const std::lock_guard lock(world().mutex);
  world().violations.clear();
  world().cliques.clear();
  world().communicators.clear();
  world().version = 22809;
}
void twin_set_version(int version) {
  const std::lock_guard lock(world().mutex);
  world().version = version;
}
const char* twin_violations() {
  const std::lock_guard lock(world().mutex);
  if (std::exchange(nccl_twin::group_depth, 0) > 0) {
    nccl_twin::group.clear();
    violate(nullptr, kInvalidUsage, "a group was not ended");
  }
  world().shown = world().violations;
  return world().shown.c_str();
}

Result ncclGetVersion(int* version) {
  const std::lock_guard lock(world().mutex);
  *version = world().version;
  return kSuccess;
}

Result ncclGetUniqueId(UniqueId* id) {
  const std::lock_guard lock(world().mutex);
  *id = {};
  const std::string text = fmt::format("twin {}", ++world().ids);
  std::memcpy(id->internal, text.data(), text.size());
  return kSuccess;
}

Result ncclCommInitRankConfig(Comm** comm, int ranks, UniqueId id, int rank, Config* config) {
  const std::lock_guard lock(world().mutex);
  *comm = nullptr;
  if (nccl_twin::group_depth > 0)
    return violate(nullptr, kInvalidUsage, "ncclCommInitRankConfig within a group");
  if (config == nullptr || config->magic != 0xcafebeef || config->size < sizeof(Config))
    return violate(nullptr, kInvalidArgument, "a configuration that is none");
  if (config->blocking != 0)
    return violate(nullptr, kInvalidArgument, "a communicator that blocks");
  if (id.internal[0] == 0)
    return violate(nullptr, kInvalidArgument, "an id that ncclGetUniqueId has not made");
  if (rank < 0 || rank >= ranks)
    return violate(nullptr, kInvalidArgument, fmt::format("rank {} of {}", rank, ranks));
  std::shared_ptr<Clique>& clique = world().cliques[std::string(id.internal, sizeof(id))];
  if (clique == nullptr) clique = std::make_shared<Clique>(ranks);
  if (clique->size != ranks)
    return violate(nullptr, kInvalidArgument,
                   fmt::format("rank {} counts {} ranks, others {}", rank, ranks, clique->size));
  Communicator*& place = clique->members[static_cast<std::size_t>(rank)];
  if (place != nullptr)
    return violate(nullptr, kInvalidUsage, fmt::format("rank {} has come twice", rank));
  world().communicators.push_back(std::make_unique<Communicator>());
  place = world().communicators.back().get();
  place->clique = clique;
  place->rank = rank;
  *comm = reinterpret_cast<Comm*>(place);
  return kInProgress;
}

Result ncclCommGetAsyncError(Comm* comm, Result* state) {
  const std::lock_guard lock(world().mutex);
  Result error = kSuccess;
  *state = kSuccess;
  Communicator* const one = usable(comm, "ncclCommGetAsyncError", true, false, error);
  if (one == nullptr) {
    *state = error;
    return kSuccess;
  }
  if (one->finalized) {
    const bool all = std::ranges::all_of(
        one->clique->members, [](const Communicator* other) { return other->finalized; });
    one->state = all ? kSuccess : kInProgress;
  } else if (!one->joined) {
    one->joined = one->clique->complete();
    one->state = one->joined ? kSuccess : kInProgress;
  } else if (one->launches_to_settle > 0) {
    --one->launches_to_settle;
  } else {
    one->state = kSuccess;
  }
  *state = one->state;
  return kSuccess;
}

Result ncclCommFinalize(Comm* comm) {
  const std::lock_guard lock(world().mutex);
  Result error = kSuccess;
  Communicator* const one = usable(comm, "ncclCommFinalize", false, false, error);
  if (one == nullptr) return error;
  if (one->finalized) return violate(one, kInvalidUsage, "ncclCommFinalize twice");
  if (one->kernels > 0)
    return violate(one, kInvalidUsage, "ncclCommFinalize while messages are under way");
  one->finalized = true;
  one->state = kInProgress;
  return kInProgress;
}

Result ncclCommDestroy(Comm* comm) {
  const std::lock_guard lock(world().mutex);
  Result error = kSuccess;
  Communicator* const one = usable(comm, "ncclCommDestroy", false, false, error);
  if (one == nullptr) return error;
  if (!one->finalized) return violate(one, kInvalidUsage, "ncclCommDestroy before the end");
  if (const std::string left = one->clique->left_over(); !left.empty())
    return violate(one, kInvalidUsage, left);
  one->ended = true;
  return kSuccess;
}

Result ncclCommAbort(Comm* comm) {
  const std::lock_guard lock(world().mutex);
  Result error = kSuccess;
  Communicator* const one = usable(comm, "ncclCommAbort", true, false, error);
  if (one == nullptr) return error;
  one->ended = true;
  world().changed.notify_all();
  return kSuccess;
}

const char* ncclGetErrorString(Result result) {
  switch (result) {
    case kSuccess:
      return "no error";
    case kInvalidArgument:
      return "invalid argument";
    case kInvalidUsage:
      return "invalid usage";
    case kInProgress:
      return "in progress";
    default:
      return "another error";
  }
}

const char* ncclGetLastError(Comm* comm) {
  const std::lock_guard lock(world().mutex);
  static thread_local std::string text;
  const Communicator* const one = nccl_twin::find(comm);
  text = one == nullptr ? world().violations : one->last_error;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.c_str();
}

Result ncclGroupStart() {
  ++nccl_twin::group_depth;
  return kSuccess;
}

Result ncclGroupEnd() {
  const std::lock_guard lock(world().mutex);
  if (nccl_twin::group_depth == 0)
    return violate(nullptr, kInvalidUsage, "the end of a group that was not begun");
  if (--nccl_twin::group_depth > 0) return kSuccess;
  return nccl_twin::launch(std::exchange(nccl_twin::group, {}));
}

Result ncclSend(const void* data, std::size_t count, DataType type, int peer, Comm* comm,
                void* stream) {
  return nccl_twin::ask(comm, "ncclSend", {Kind::kSend, peer, data, nullptr, count, type}, stream);
}

Result ncclRecv(void* data, std::size_t count, DataType type, int peer, Comm* comm, void* stream) {
  return nccl_twin::ask(comm, "ncclRecv", {Kind::kReceive, peer, nullptr, data, count, type},
                        stream);
}

Result ncclBroadcast(const void* from, void* to, std::size_t count, DataType type, int root,
                     Comm* comm, void* stream) {
  return nccl_twin::ask(comm, "ncclBroadcast", {Kind::kBroadcast, root, from, to, count, type},
                        stream);
}
}
#pragma GCC visibility pop
