// Streams and events of the twin. Work is queued and runs when something waits for it, or when the
// dice say so: of several streams that could go on, one drawn at random does. So a missing wait
// shows as wrong values, with some seeds (LONGSTRIDE_TWIN_SEED, default 1).
//
// Thread-safe; the functions that wait run work in the calling thread.
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <string>

namespace longstride::twin {

using Work = std::function<void()>;

cudaStream_t make_stream();
void end_stream(cudaStream_t stream);  // after all of its work
void enqueue(cudaStream_t stream, Work work);
void wait_for_stream(cudaStream_t stream);
void wait_for_all();

cudaEvent_t make_event();
void end_event(cudaEvent_t event);
void record(cudaEvent_t event, cudaStream_t stream);
void let_wait(cudaStream_t stream, cudaEvent_t event);
bool has_passed(cudaEvent_t event);  // and runs some work if not
void wait_for_event(cudaEvent_t event);
// Milliseconds on the host between two passed events.
float elapsed(cudaEvent_t begin, cudaEvent_t end);

// The first fault of any work; it stays. cudaSuccess if there was none.
cudaError_t fault();
// Prints why a call is refused.
cudaError_t refuse(cudaError_t status, const std::string& what);

std::uint64_t draw();  // a random number

}  // namespace longstride::twin
