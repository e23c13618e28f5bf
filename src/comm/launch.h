// Launch: how this process was started, and the group that it forms with the others.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "comm/message_link.h"

namespace longstride::comm {

// By the environment alone, without MPI.
struct Launch {
  std::string started_by;  // "mpirun", "srun"; empty: by neither, or with a single process
  int rank = 0, size = 1;
  bool several() const { return size > 1; }
};
// `variable` returns the value of a variable of the environment, or null.
Launch read_launch(const std::function<const char*(const char*)>& variable);
Launch read_launch();  // of this process

// What must be equal on all ranks, as text.
struct SameEverywhere {
  std::string version;        // of the program
  std::string configuration;  // of the run
  std::string devices;        // their names
};

// Forms the group, once per process. Throws Error if MPI cannot be opened.
std::unique_ptr<MessageLink> open_group(const Launch& launch, const LinkOptions& options);

// Every rank calls it, after open_group. If they differ, rank 0 throws an Error that names the
// first rank that does, its host and what differs, and all others throw RankFailed.
void check_same(MessageLink& link, const SameEverywhere& mine);

}  // namespace longstride::comm
