// Copies on the CPU: done when the call returns, so waits do nothing.
#pragma once

#include "device/mover.h"

namespace longstride {

std::unique_ptr<Mover> make_cpu_mover();

}  // namespace longstride
