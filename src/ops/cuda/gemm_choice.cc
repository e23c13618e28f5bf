#include "ops/cuda/gemm_choice.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "base/error.h"
#include "device/cuda/check.h"
#include "ops/cuda/library_context.h"

namespace longstride::ops::cuda {
namespace {

constexpr int kCandidates = 8;
// Times all candidates briefly, then the finalists in rounds long enough for the GPU to reach its
// clock under sustained load: the fastest on a cold GPU may not be the fastest on a hot one.
constexpr int kFinalists = 3;
constexpr int kRounds = 3;  // each finalist's best round counts
constexpr float kLookMs = 1.5f, kRoundMs = 12.0f;
constexpr int kMostRepeats = 400;
// A candidate replaces the library's first advice only if its time is below this share: less is
// noise.
constexpr float kClearly = 0.99f;

template <class T>
void prefer(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t what,
            T value) {
  LS_BLAS(cublasLtMatmulPreferenceSetAttribute(preference, what, &value, sizeof(value)));
}

class Stopwatch {
 public:
  explicit Stopwatch(cudaStream_t stream) : stream_(stream) {
    LS_CUDA(cudaEventCreate(&begin_));
    LS_CUDA(cudaEventCreate(&end_));
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  ~Stopwatch() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  template <class F>
  float milliseconds(const F& f) {
    LS_CUDA(cudaEventRecord(begin_, stream_));
    f();
    LS_CUDA(cudaEventRecord(end_, stream_));
    LS_CUDA(cudaEventSynchronize(end_));
    float ms = 0;
    LS_CUDA(cudaEventElapsedTime(&ms, begin_, end_));
    return ms;
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

}  // namespace

std::vector<cublasLtMatmulAlgo_t> advised_algorithms(cublasLtHandle_t blas, const GemmShape& s,
                                                     const GemmPlan& plan,
                                                     std::int64_t workspace_bytes, int most) {
  cublasLtMatmulPreference_t preference = nullptr;
  LS_BLAS(cublasLtMatmulPreferenceCreate(&preference));
  prefer(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
         static_cast<std::uint64_t>(workspace_bytes));
  // If a product is split along k, its parts are added in F32 in the workspace, never one after
  // another in the output, which would round each of them.
  prefer(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  const auto alignment = static_cast<std::uint32_t>(s.alignment);
  prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment);
  prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment);
  prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment);
  prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment);
  std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<std::size_t>(most));
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      blas, plan.operation, plan.b, plan.a, plan.c, plan.d, preference, most, found.data(), &count);
  cublasLtMatmulPreferenceDestroy(preference);
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (int i = 0; i < count; ++i)
    if (found[static_cast<std::size_t>(i)].state == CUBLAS_STATUS_SUCCESS)
      algorithms.push_back(found[static_cast<std::size_t>(i)].algo);
  LS_CHECK(status == CUBLAS_STATUS_SUCCESS && !algorithms.empty(),
           "cuBLASLt knows no way for {}: {}", text_of(s), cublasLtGetStatusString(status));
  return algorithms;
}

cublasLtMatmulAlgo_t quickest_algorithm(Stream& stream, const Gemm& g, GemmPlan& plan) {
  const std::vector<cublasLtMatmulAlgo_t> candidates = advised_algorithms(
      libraries_of(stream).blas(), g.shape, plan, LibraryContext::kWorkspaceBytes, kCandidates);
  Stopwatch watch(longstride::cuda::cuda_stream(stream).handle());
  // Milliseconds per product, over as many products as take about `ms`.
  const auto time = [&](std::size_t candidate, float ms, float one) {
    plan.algorithm = candidates[candidate];
    const int repeats =
        static_cast<int>(std::clamp(ms / one, 1.0f, static_cast<float>(kMostRepeats)));
    return watch.milliseconds([&] {
      for (int i = 0; i < repeats; ++i) multiply(stream, g, plan);
    }) / static_cast<float>(repeats);
  };
  std::vector<float> best(candidates.size());
  std::vector<std::size_t> order(candidates.size());
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    time(i, 0, 1);  // loads the kernel
    best[i] = time(i, kLookMs, time(i, 0, 1));
    order[i] = i;
  }
  std::ranges::sort(order, {}, [&](std::size_t i) { return best[i]; });
  order.resize(std::min<std::size_t>(order.size(), kFinalists));
  if (std::ranges::find(order, 0u) == order.end()) order.push_back(0);
  // They take turns, so that a GPU that heats up affects all alike.
  std::vector<float> settled(candidates.size(), std::numeric_limits<float>::infinity());
  for (int round = 0; round < kRounds; ++round)
    for (const std::size_t i : order) settled[i] = std::min(settled[i], time(i, kRoundMs, best[i]));
  const auto quickest = std::ranges::min_element(settled);
  return *quickest < settled[0] * kClearly
             ? candidates[static_cast<std::size_t>(quickest - settled.begin())]
             : candidates[0];
}

std::string text_of(const GemmShape& s) {
  return fmt::format("m{} n{} k{}{}{} {} to {} ld {},{},{}{}{}{} aligned {}", s.m, s.n, s.k,
                     s.trans_a ? " A^T" : "", s.trans_b ? " B^T" : "", name_of(s.in),
                     name_of(s.out), s.lda, s.ldb, s.ldd,
                     s.ldc > 0 ? fmt::format(",{}", s.ldc) : "", s.bias ? " bias" : "",
                     s.add ? " add" : "", s.alignment);
}

std::string text_of(const cublasLtMatmulAlgo_t& algorithm) {
  std::string text;
  for (const std::uint64_t word : algorithm.data)
    text += fmt::format("{}{:x}", text.empty() ? "" : " ", word);
  return text;
}

cublasLtMatmulAlgo_t algorithm_of(const std::string& text) {
  cublasLtMatmulAlgo_t algorithm{};
  const char* at = text.data();
  const char* const end = at + text.size();
  for (std::uint64_t& word : algorithm.data) {
    if (at != end && *at == ' ') ++at;
    const auto [next, error] = std::from_chars(at, end, word, 16);
    if (error != std::errc{})
      throw Error(fmt::format("the numerics record names an unknown way to multiply: '{}'", text),
                  "the record is damaged: resume from another checkpoint");
    at = next;
  }
  return algorithm;
}

bool takes_algorithm(cublasLtHandle_t blas, const GemmPlan& plan, std::int64_t workspace_bytes) {
  cublasLtMatmulHeuristicResult_t result{};
  return cublasLtMatmulAlgoCheck(blas, plan.operation, plan.b, plan.a, plan.c, plan.d,
                                 &plan.algorithm, &result) == CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= static_cast<std::size_t>(workspace_bytes);
}

}  // namespace longstride::ops::cuda
