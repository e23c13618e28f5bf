// OpenBLAS's working memory: a large buffer for every thread inside one of its calls. If the system
// refuses one, OpenBLAS retries forever, so we allocate them in advance.
#pragma once

namespace longstride::ops::cpu {

// Makes sure that this many threads can call OpenBLAS at once from now on. The buffers take address
// space, and memory only as they are used. May be called from any thread; quick if they exist
// already. Throws Error, with the limit and the need, if the system refuses them.
void reserve_blas_buffers(int threads);

}  // namespace longstride::ops::cpu
