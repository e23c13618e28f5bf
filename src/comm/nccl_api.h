// The part of NCCL's interface that is used here, declared anew: the header may be missing where
// this is compiled, and links over NCCL are tested without CUDA. comm/cuda/nccl_header_check.cc
// compares it with <nccl.h> where there is one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace longstride::comm::nccl {

struct Comm;  // ncclComm

// ncclResult_t; libraries may return numbers that are not here.
enum Result : std::uint32_t {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7
};
// ncclDataType_t. Bytes are all that a link moves.
enum DataType : std::uint32_t { kInt8 = 0, kUint8 = 1 };

struct UniqueId {
  char internal[128];
};

// ncclConfig_t of version 2.14, the first; later libraries take it and choose what it lacks.
struct Config {
  std::size_t size = sizeof(Config);
  std::uint32_t magic = 0xcafebeef;
  std::uint32_t version = 21400;
  int blocking = 0;
};

// A stream is a cudaStream_t.
struct Functions {
  Result (*get_version)(int* version) = nullptr;
  Result (*get_unique_id)(UniqueId* id) = nullptr;
  Result (*comm_init)(Comm** comm, int ranks, UniqueId id, int rank, Config* config) = nullptr;
  Result (*comm_finalize)(Comm* comm) = nullptr;
  Result (*comm_destroy)(Comm* comm) = nullptr;
  Result (*comm_abort)(Comm* comm) = nullptr;
  Result (*async_error)(Comm* comm, Result* error) = nullptr;
  const char* (*error_text)(Result result) = nullptr;
  const char* (*last_error)(Comm* comm) = nullptr;
  Result (*group_start)() = nullptr;
  Result (*group_end)() = nullptr;
  Result (*send)(const void* data, std::size_t count, DataType type, int peer, Comm* comm,
                 void* stream) = nullptr;
  Result (*receive)(void* data, std::size_t count, DataType type, int peer, Comm* comm,
                    void* stream) = nullptr;
  Result (*broadcast)(const void* from, void* to, std::size_t count, DataType type, int root,
                      Comm* comm, void* stream) = nullptr;
};

}  // namespace longstride::comm::nccl
