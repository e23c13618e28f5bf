#include "ops/kernel_choices.h"

namespace longstride::ops {

void use_kernel_choices(Stream& stream, const KernelChoices& choices) {
  if (chooses_kernels(stream)) cuda::use_kernel_choices(stream, choices);
}

void begin_choosing_kernels(Stream& stream) {
  if (chooses_kernels(stream)) cuda::begin_choosing_kernels(stream);
}

KernelChoices end_choosing_kernels(Stream& stream) {
  return chooses_kernels(stream) ? cuda::end_choosing_kernels(stream) : KernelChoices{};
}

}  // namespace longstride::ops
