// The memory OpenBLAS works in: a large buffer for every thread that is in one of its calls. Where
// the system refuses one, OpenBLAS asks again for ever, so we ask first.
#pragma once

namespace longstride::ops::cpu {

// Sees that so many threads can be in OpenBLAS at once, from now on; its buffers are address space,
// which takes memory as it is used. From any thread; quick where that many are there already.
// Throws Error, with the limit and what is needed, where the system refuses them.
void reserve_blas_buffers(int threads);

}  // namespace longstride::ops::cpu
