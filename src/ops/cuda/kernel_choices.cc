#include "ops/kernel_choices.h"

#include "ops/cuda/library_context.h"

namespace longstride::ops::cuda {

void use_kernel_choices(Stream& stream, const KernelChoices& choices) {
  libraries_of(stream).gemms().use(choices);
}

void begin_choosing_kernels(Stream& stream) { libraries_of(stream).gemms().measure(true); }

KernelChoices end_choosing_kernels(Stream& stream) {
  GemmPlans& gemms = libraries_of(stream).gemms();
  gemms.measure(false);
  return gemms.choices();
}

}  // namespace longstride::ops::cuda
