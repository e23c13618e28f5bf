// A strict twin of libnccl over the memory of one process, where ranks are threads: the functions
// of NCCL that links use, and streams for them. It is opened like NCCL (comm/nccl_library.h).
//
// What NCCL may let pass or answer by hanging is a violation here: ends of a message that differ in
// size or type, sends and receives that wait for each other outside of a group, groups that are not
// ended, collectives that differ or come in another order, communicators that block, are used while
// something is in progress, after their end or by the wrong rank, messages left over at the end. A
// violation is kept as text, and is an error of the communicator.
#pragma once

// All else of the library is hidden.
#pragma GCC visibility push(default)
extern "C" {
// Forgets violations and communicators; the version is that of a new library.
void twin_reset();
void twin_set_version(int version);
// One per line; "" if there is none. Valid until the next call. A group that this thread has begun
// and not ended is one.
const char* twin_violations();

// Streams and events as CUDA's, run by threads.
void* twin_stream_create();
void twin_stream_destroy(void* stream);  // waits until it has run
void twin_stream_synchronize(void* stream);
void twin_stream_run(void* stream, void (*function)(void*), void* argument);
void twin_stream_wait(void* stream, void* event);
void* twin_event_create();
void twin_event_destroy(void* event);
void twin_event_record(void* event, void* stream);
int twin_event_passed(void* event);
}
#pragma GCC visibility pop
