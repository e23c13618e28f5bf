// NCCL's library, opened when it is needed: the program starts and runs without it.
#pragma once

#include <string>

#include "comm/nccl_api.h"

namespace longstride::comm {

// Immutable after construction; any thread may use it. The library stays open until the process
// ends.
class NcclLibrary {
 public:
  // Opens `file`, or if it is empty the one that LONGSTRIDE_NCCL names, else libnccl.so.2: one that
  // the process has opened already, of the loader's path, of the folders in
  // LONGSTRIDE_CUDA_LIBRARIES (separated by colons), or of the CUDA toolkit. Throws Error if there
  // is none, or an old one.
  explicit NcclLibrary(const std::string& file = "");

  const nccl::Functions& calls() const { return calls_; }
  int version() const { return version_; }  // 22809 for 2.28.9
  std::string version_text() const;         // "2.28.9"
  const std::string& file() const { return file_; }

  // Throws Error with NCCL's own words unless the result is success or, for a communicator that
  // does not block, "in progress". `what` says what was asked for; `comm` may be null.
  void check(nccl::Result result, const std::string& what, nccl::Comm* comm = nullptr) const;

 private:
  nccl::Functions calls_;
  int version_ = 0;
  std::string file_;
};

std::string nccl_version_text(int version);

}  // namespace longstride::comm
