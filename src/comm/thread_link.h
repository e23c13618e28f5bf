// Ranks as threads of one process, for tests: links over memory of the process. They run the code
// of real ranks except for the wire, whose faults can be chosen.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "comm/message_link.h"

namespace longstride::comm {

// What the wires of a group share. Thread-safe.
class ThreadHub {
 public:
  explicit ThreadHub(int size);
  ThreadHub(const ThreadHub&) = delete;
  ThreadHub& operator=(const ThreadHub&) = delete;
  ~ThreadHub();

  int size() const;
  MakeWire wire(int rank);
  // From now on the rank neither sends nor receives, like a process that was stopped.
  void freeze(int rank);
  // Whether a rank has asked for the end of all processes.
  bool aborted() const;

  struct State;

 private:
  std::shared_ptr<State> state_;
};

// Calls body with the link of each rank, on threads of their own, and waits for all. What a body
// throws is told to the other ranks (MessageLink::fail) and returned, null if nothing: by rank.
std::vector<std::exception_ptr> run_thread_ranks(ThreadHub& hub, const LinkOptions& options,
                                                 const std::function<void(MessageLink&)>& body);

}  // namespace longstride::comm
