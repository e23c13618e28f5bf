#include "ops/kernel_choices.h"

#include "ops/cuda/library_context.h"

namespace longstride::ops::cuda {

void use_kernel_choices(Stream& stream, const KernelChoices& choices) {
  libraries_of(stream).gemms().use(choices);
}

void begin_choosing_kernels(Stream& stream) { libraries_of(stream).gemms().measure(true); }

void end_choosing_kernels(Stream& stream) { libraries_of(stream).gemms().measure(false); }

KernelChoices kernels_met(Stream& stream) { return libraries_of(stream).gemms().met(); }

}  // namespace longstride::ops::cuda
