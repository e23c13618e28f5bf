// The C interface between the program and its MPI plugin (liblongstride_mpi.so), which alone is
// linked with MPI. The program opens the plugin when a launcher has started it, so that it runs
// without MPI otherwise.
//
// All functions are called by one thread. Those that return int return 0, or -1 where `error` says
// why. Requests belong to the plugin: a null request is done.
#pragma once

#include <cstdint>

// To be raised with every change of this interface.
constexpr int kLongstrideMpiVersion = 1;

struct LongstrideMpi {
  int version;
  const char* (*library)();  // its name and version
  const char* (*error)();    // of the last call that failed
  int (*open)(int* rank, int* size);
  int (*send)(const void* data, std::int64_t bytes, int to, int channel, void** request);
  int (*receive)(void* data, std::int64_t bytes, int from, int channel, void** request);
  // Frees the request and sets it to null once it is done.
  int (*test)(void** request);
  // Frees the request. What was to be received is not written any more.
  int (*cancel)(void** request);
  // The size of the next message of the channel, from any rank; -1 if there is none.
  int (*probe)(int channel, int* from, std::int64_t* bytes);
  // Receives a message that probe has found.
  int (*take)(void* data, std::int64_t bytes, int from, int channel);
  int (*close)();
  void (*abort)(int status);
};

// The only symbol that the program looks up, under this name.
extern "C" const LongstrideMpi* longstride_mpi();
constexpr const char* kLongstrideMpiSymbol = "longstride_mpi";
