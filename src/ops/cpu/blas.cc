#include "ops/cpu/blas.h"

#include <cblas.h>

#include <cstdlib>
#include <limits>
#include <mutex>
#include <sstream>

#include "base/error.h"
#include "base/thread_pool.h"
#include "ops/cpu/blas_buffers.h"

// OpenBLAS's own kernel selection, which we run again. Absent in builds of OpenBLAS for one CPU.
extern "C" {
__attribute__((weak)) void gotoblas_dynamic_init(void);
__attribute__((weak)) void gotoblas_dynamic_quit(void);
}

namespace longstride::ops::cpu {
namespace {

// 0 for other names: the generic x86-64 kernels that OpenBLAS falls back to on CPUs newer than
// itself.
int rank_of(const std::string& core) {
  if (core == "SkylakeX" || core == "Cooperlake" || core == "SapphireRapids") return 2;
  if (core == "Haswell" || core == "Zen" || core == "Excavator") return 1;
  return 0;
}

// OpenBLAS recognizes CPUs by model number; on a CPU newer than the library it picks kernels that
// are many times too slow. We select by CPU features instead, unless the user has chosen.
void choose_core() {
  openblas_set_num_threads(1);
  const std::string best = best_blas_core();
  if (best.empty() || std::getenv("OPENBLAS_CORETYPE") != nullptr) return;
  if (gotoblas_dynamic_init == nullptr || gotoblas_dynamic_quit == nullptr) return;
  if (rank_of(openblas_get_corename()) >= rank_of(best)) return;
  setenv("OPENBLAS_CORETYPE", best.c_str(), 1);
  gotoblas_dynamic_quit();
  gotoblas_dynamic_init();
  unsetenv("OPENBLAS_CORETYPE");
}

void prepare() {
  static std::once_flag once;
  std::call_once(once, choose_core);
  reserve_blas_buffers(thread_count());
}

int to_int(std::int64_t n) {
  LS_CHECK(n >= 0 && n <= std::numeric_limits<int>::max(), "a matrix dimension of {}", n);
  return static_cast<int>(n);
}

}  // namespace

std::string best_blas_core() {
#if defined(__x86_64__)
  // SkylakeX and Cooperlake measure the same in single precision; the former needs fewer features.
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    return "SkylakeX";
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "Haswell";
#endif
  return "";
}

void sgemm(Trans trans_a, Trans trans_b, std::int64_t m, std::int64_t n, std::int64_t k,
           float alpha, const float* a, std::int64_t lda, const float* b, std::int64_t ldb,
           float beta, float* c, std::int64_t ldc) {
  if (m == 0 || n == 0) return;
  prepare();
  cblas_sgemm(CblasRowMajor, trans_a == Trans::kYes ? CblasTrans : CblasNoTrans,
              trans_b == Trans::kYes ? CblasTrans : CblasNoTrans, to_int(m), to_int(n), to_int(k),
              alpha, a, to_int(lda), b, to_int(ldb), beta, c, to_int(ldc));
}

std::string blas_description() {
  prepare();
  // The configuration starts with the name and the version.
  std::istringstream config(openblas_get_config());
  std::string name, version;
  config >> name >> version;
  return name + " " + version + " " + openblas_get_corename();
}

}  // namespace longstride::ops::cpu
