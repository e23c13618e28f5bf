// The plugin: MPI behind the interface of plugin.h. It uses nothing else of the program.
#include "comm/mpi/plugin.h"

#include <mpi.h>

#include <climits>
#include <cstdio>
#include <string>

namespace {

std::string last_error;          // NOLINT(cert-err58-cpp): of one thread
MPI_Comm group = MPI_COMM_NULL;  // ours, so that no other message is taken for one of ours

int checked(int code, const char* call) {
  if (code == MPI_SUCCESS) return 0;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  last_error = std::string(call) + ": " + std::string(text, static_cast<std::size_t>(length));
  return -1;
}

bool too_large(std::int64_t bytes) {
  if (bytes <= INT_MAX) return false;
  last_error = "a message of " + std::to_string(bytes) + " bytes is too large for MPI";
  return true;
}

const char* library() {
  static char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(text, &length);
  return text;
}

const char* error() { return last_error.c_str(); }

int open(int* rank, int* size) {
  int given = 0;
  if (checked(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &given), "MPI_Init_thread"))
    return -1;
  if (given < MPI_THREAD_FUNNELED) {
    last_error = "this MPI library does not support programs with threads";
    return -1;
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (checked(MPI_Comm_dup(MPI_COMM_WORLD, &group), "MPI_Comm_dup")) return -1;
  MPI_Comm_set_errhandler(group, MPI_ERRORS_RETURN);
  MPI_Comm_rank(group, rank);
  MPI_Comm_size(group, size);
  return 0;
}

int send(const void* data, std::int64_t bytes, int to, int channel, void** request) {
  if (too_large(bytes)) return -1;
  auto* made = new MPI_Request;
  *request = made;
  return checked(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to, channel, group, made),
                 "MPI_Isend");
}

int receive(void* data, std::int64_t bytes, int from, int channel, void** request) {
  if (too_large(bytes)) return -1;
  auto* made = new MPI_Request;
  *request = made;
  return checked(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, from, channel, group, made),
                 "MPI_Irecv");
}

int test(void** request) {
  auto* made = static_cast<MPI_Request*>(*request);
  int done = 0;
  if (checked(MPI_Test(made, &done, MPI_STATUS_IGNORE), "MPI_Test")) return -1;
  if (done == 0) return 0;
  delete made;
  *request = nullptr;
  return 0;
}

int cancel(void** request) {
  auto* made = static_cast<MPI_Request*>(*request);
  *request = nullptr;
  // Fails for what is sent, which then goes on; what is received ends here.
  MPI_Cancel(made);
  int done = 0;
  for (int tries = 0; tries < 1000 && done == 0; ++tries)
    if (MPI_Test(made, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) break;
  if (*made != MPI_REQUEST_NULL) MPI_Request_free(made);
  delete made;
  return 0;
}

int probe(int channel, int* from, std::int64_t* bytes) {
  int found = 0, count = 0;
  MPI_Status status;
  *bytes = -1;
  if (checked(MPI_Iprobe(MPI_ANY_SOURCE, channel, group, &found, &status), "MPI_Iprobe")) return -1;
  if (found == 0) return 0;
  if (checked(MPI_Get_count(&status, MPI_BYTE, &count), "MPI_Get_count")) return -1;
  *from = status.MPI_SOURCE;
  *bytes = count;
  return 0;
}

int take(void* data, std::int64_t bytes, int from, int channel) {
  return checked(
      MPI_Recv(data, static_cast<int>(bytes), MPI_BYTE, from, channel, group, MPI_STATUS_IGNORE),
      "MPI_Recv");
}

int close() {
  if (checked(MPI_Comm_free(&group), "MPI_Comm_free")) return -1;
  return checked(MPI_Finalize(), "MPI_Finalize");
}

void abort(int status) { MPI_Abort(MPI_COMM_WORLD, status); }

}  // namespace

extern "C" __attribute__((visibility("default"))) const LongstrideMpi* longstride_mpi() {
  static const LongstrideMpi functions = {kLongstrideMpiVersion,
                                          library,
                                          error,
                                          open,
                                          send,
                                          receive,
                                          test,
                                          cancel,
                                          probe,
                                          take,
                                          close,
                                          abort};
  return &functions;
}
