// AdamW with moments in 8 bits; the contract is in ops/optimizer.h.
#pragma once

#include "ops/optimizer.h"

namespace longstride::ops::cpu {

void adamw_8bit(const AdamW& args);

}  // namespace longstride::ops::cpu
