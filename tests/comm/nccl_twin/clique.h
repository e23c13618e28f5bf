// The communicators of one group of ranks, and how their messages meet. One lock guards all of the
// twin.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "comm/nccl_api.h"

namespace nccl_twin {

using longstride::comm::nccl::DataType;
using longstride::comm::nccl::Result;

struct Clique;

enum class Kind { kSend, kReceive, kBroadcast };
struct Operation {
  Kind kind = Kind::kSend;
  int peer = 0;  // a broadcast: the root
  const void* from = nullptr;
  void* to = nullptr;
  std::size_t count = 0;
  DataType type = longstride::comm::nccl::kUint8;
  bool done = false;
};

// ncclComm
struct Communicator {
  std::shared_ptr<Clique> clique;
  int rank = 0;
  Result state = longstride::comm::nccl::kInProgress;
  std::string last_error;
  bool joined = false, finalized = false, ended = false;  // by destroy or abort
  int launches_to_settle = 0;                             // polls that still say "in progress"
  int kernels = 0;                                        // launched and not run
  void* stream = nullptr;
  std::vector<Operation>* running = nullptr;
  std::size_t collectives = 0;  // begun
  bool failed() const;
};

struct Collective {
  std::vector<Operation*> arrived;  // by rank
  int first = -1;                   // that arrived
};

struct Clique {
  explicit Clique(int ranks) : size(ranks), members(static_cast<std::size_t>(ranks)) {}
  struct Pair {
    std::deque<Operation*> sends, receives;
  };
  const int size;
  std::vector<Communicator*> members;         // by rank; null: has not come
  std::map<std::pair<int, int>, Pair> pairs;  // by sender and receiver
  std::map<std::size_t, Collective> collectives;
  bool complete() const;
  std::string left_over() const;  // "" if nothing
};

struct World {
  std::mutex mutex;
  std::condition_variable changed;
  int version = 22809;
  std::string violations, shown;
  int ids = 0;
  std::map<std::string, std::shared_ptr<Clique>> cliques;
  std::vector<std::unique_ptr<Communicator>> communicators;  // ended ones too
};
World& world();

// With the lock held. Sets the communicator's error, keeps the text, and returns the error.
Result violate(Communicator* one, Result error, const std::string& text);
// On the stream's thread: runs one launch of a communicator to its end, or until that is aborted.
void run_kernel(Communicator& one, std::vector<Operation> operations);

}  // namespace nccl_twin
