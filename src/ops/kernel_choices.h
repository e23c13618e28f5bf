// Kernels that are equally valid but differ in speed and in the order of their sums: chosen by
// measuring, kept in the numerics record, reused on resume. On the CPU there is nothing to choose.
#pragma once

#include <map>
#include <string>

#include "device/device.h"

namespace longstride::ops {

using KernelChoices = std::map<std::string, std::string>;  // operation and shape -> kernel, as text

// From now on the stream uses these choices, and the library's default if there is none. Throws
// Error if a text cannot be parsed.
void use_kernel_choices(Stream& stream, const KernelChoices& choices);
// While one of these exists, an operation and shape met for the first time without a choice is
// measured, which overwrites its outputs several times and waits for the device. Not thread-safe:
// the stream's thread owns it.
class ChoosingKernels {
 public:
  explicit ChoosingKernels(Stream& stream);
  ChoosingKernels(const ChoosingKernels&) = delete;
  ChoosingKernels& operator=(const ChoosingKernels&) = delete;
  ~ChoosingKernels();
  // The choices for everything computed since construction, and for nothing else.
  KernelChoices choices() const;

 private:
  Stream& stream_;
};
// Whether there is anything to choose on this stream's device.
inline bool chooses_kernels(const Stream& stream) { return stream.kind() == DeviceKind::kCuda; }

namespace cuda {
void use_kernel_choices(Stream& stream, const KernelChoices& choices);
void begin_choosing_kernels(Stream& stream);
void end_choosing_kernels(Stream& stream);
KernelChoices kernels_met(Stream& stream);
}  // namespace cuda

}  // namespace longstride::ops
