// Tracer: records a stretch of work, on the host and on the device, and writes it as a trace.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "device/device.h"

namespace longstride {

// One at a time, since spans are the process's. start and finish are called by the thread that owns
// the device's stream; they wait for it.
class Tracer {
 public:
  // Throws Error where the file could not be written, or where one is that is no trace; starts
  // nothing.
  explicit Tracer(std::filesystem::path file);
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;
  // What was not finished is dropped.
  ~Tracer();

  // Records from now on. `device` outlives finish(). Warns where the device computes on its own
  // and has nothing to record with.
  void start(Device& device, const std::string& title);
  bool running() const { return device_ != nullptr; }
  // Ends the recording, whatever comes of it, and writes the file. Throws Error where it cannot be
  // written, or another file has come there meanwhile.
  void finish();

 private:
  std::filesystem::path file_;
  std::string title_;
  Device* device_ = nullptr;
  std::unique_ptr<ActivityRecorder> recorder_;
};

}  // namespace longstride
