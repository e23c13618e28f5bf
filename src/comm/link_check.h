// Whether a link delivers the right bytes: every operation at one size. For `bench link` and tests.
#pragma once

#include <cstdint>

#include "comm/link.h"

namespace longstride::comm {

// All ranks call it. `bytes` is the size of a message, and about what a rank sends and receives in
// one of the other operations, divided between the ranks unevenly. Throws Error naming the
// operation and both ranks if a byte is wrong.
void check_link(Link& link, std::int64_t bytes);

}  // namespace longstride::comm
