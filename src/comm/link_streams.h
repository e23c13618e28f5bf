// LinkStreams: the streams of a device on which a link's messages run, beside the one that
// computes. A small seam, so that links over NCCL are tested without a GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "device/device.h"

namespace longstride::comm {

// Streams and marks are never given back before the end. Not thread-safe, but for passed(),
// enter_thread() and synchronize().
class LinkStreams {
 public:
  using Stream = void*;  // what NCCL takes for one
  using Mark = void*;    // a point of a stream

  virtual ~LinkStreams() = default;
  virtual Stream add_stream() = 0;
  virtual Mark add_mark() = 0;
  // Bytes of device memory, zero, until the end.
  virtual std::byte* scratch(std::int64_t bytes) = 0;
  // What `stream` is given from now on waits for what the computing stream was given so far.
  virtual void after_compute(Stream stream) = 0;
  // The mark passes when what `stream` was given so far has run.
  virtual void record(Mark mark, Stream stream) = 0;
  virtual bool passed(Mark mark) = 0;
  // What the computing stream is given from now on waits for the mark. The host goes on.
  virtual void compute_waits(Mark mark) = 0;
  // Waits until the stream has run.
  virtual void synchronize(Stream stream) = 0;
  // At the beginning of every other thread that calls NCCL.
  virtual void enter_thread() = 0;
};

// Of a CUDA device, which must outlive them. Throws Error for another device.
std::unique_ptr<LinkStreams> make_link_streams(Device& device);
// What tells the device's GPU from all others of any host: its UUID. Empty: it is none.
std::string gpu_identity(Device& device);

}  // namespace longstride::comm
