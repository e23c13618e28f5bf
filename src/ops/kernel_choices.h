// Ways to compute that are equally right and differ in speed and in the order of their sums: chosen
// by measuring, kept in the numerics record, replayed on resume. On the CPU there is nothing to
// choose.
#pragma once

#include <map>
#include <string>

#include "device/device.h"

namespace longstride::ops {

using KernelChoices = std::map<std::string, std::string>;  // what is computed -> how, as text

// The stream computes what the record names in the way that it names; where it names none, as the
// library advises. Throws Error where a text is none of ours.
void use_kernel_choices(Stream& stream, const KernelChoices& choices);
// While one of these lives, whatever is computed for the first time and has no choice yet is
// measured, which overwrites its outputs several times over and waits for the device.
class ChoosingKernels {
 public:
  explicit ChoosingKernels(Stream& stream);
  ChoosingKernels(const ChoosingKernels&) = delete;
  ChoosingKernels& operator=(const ChoosingKernels&) = delete;
  ~ChoosingKernels();
  // Of all that was computed meanwhile, and of nothing else.
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
