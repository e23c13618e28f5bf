// Tracer: records activity on the host and on the device, and writes it as a trace.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "comm/message_link.h"
#include "device/device.h"

namespace longstride {

// One at a time, since spans are global to the process. Only the thread that owns the device's
// stream may call start and finish; they wait for the stream.
class Tracer {
 public:
  // Throws Error if the file could not be written, or exists and is not a trace. Does not start
  // recording. `link`: to the other ranks of a run, whose rows are in the same file. All of them
  // call start and finish then, and rank 0 alone writes. It must outlive this.
  explicit Tracer(std::filesystem::path file, comm::MessageLink* link = nullptr);
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;
  // Discards an unfinished recording.
  ~Tracer();

  // Starts recording. `device` must outlive finish(). Warns if the device is asynchronous and has
  // no recorder.
  void start(Device& device, const std::string& title);
  bool running() const { return device_ != nullptr; }
  // Ends the recording in any case, and writes the file. Throws Error if it cannot be written, or
  // if another file has appeared there meanwhile.
  void finish();

 private:
  std::filesystem::path file_;
  comm::MessageLink* link_;
  std::int64_t clock_offset_ns_ = 0;  // to rank 0's
  std::string title_;
  Device* device_ = nullptr;
  std::unique_ptr<ActivityRecorder> recorder_;
};

}  // namespace longstride
