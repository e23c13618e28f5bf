#include "ops/kernel_choices.h"

namespace longstride::ops {

void use_kernel_choices(Stream& stream, const KernelChoices& choices) {
  if (chooses_kernels(stream)) cuda::use_kernel_choices(stream, choices);
}

ChoosingKernels::ChoosingKernels(Stream& stream) : stream_(stream) {
  if (chooses_kernels(stream)) cuda::begin_choosing_kernels(stream);
}

ChoosingKernels::~ChoosingKernels() {
  if (chooses_kernels(stream_)) cuda::end_choosing_kernels(stream_);
}

KernelChoices ChoosingKernels::choices() const {
  return chooses_kernels(stream_) ? cuda::kernels_met(stream_) : KernelChoices{};
}

}  // namespace longstride::ops
