// Steps that were measured on one H200, and where their figures stand.
#pragma once

#include "tests/plan/gpu_plan.h"

namespace longstride {

struct MeasuredStep {
  const char* what;
  GpuStep step;
  double seconds = 0;
  const char* source;
  double host_state = 0;  // bytes of the optimizer in host memory, if the update is included
};

inline std::vector<MeasuredStep> measured_steps() {
  constexpr std::int64_t K = 1024, M = 1024 * K, kGiB = std::int64_t{1} << 30;
  constexpr std::int64_t kStreaming = GpuStep::kStreaming;
  constexpr DType kBF16 = DType::kBF16;
  // Four vectors for a page, as up to 256K tokens by default.
  const Selection outliers{
      .summary_tokens = 32, .summary = Summary::kOutliers, .scoring = Scoring::kFocus};
  return {
      {"dense 8K", {.tokens = 8 * K}, 0.78, "docs/cuda.md"},
      {"dense 8K, one chunk", {.tokens = 8 * K, .chunk = 8 * K}, 0.66, "docs/plan.md"},
      {"dense 16K, two chunks kept",
       {.tokens = 16 * K, .chunk = 8 * K, .keep_chunks = 2},
       1.50,
       "docs/plan.md"},
      {"dense 32K", {.tokens = 32 * K}, 4.68, "docs/cuda.md"},
      {"dense 32K, three chunks of four kept",
       {.tokens = 32 * K, .chunk = 8 * K, .keep_chunks = 3},
       3.93,
       "docs/plan.md"},
      {"dense 32K, streamed", {.tokens = 32 * K, .page_memory = kStreaming}, 4.71, "docs/tiers.md"},
      {"dense 64K", {.tokens = 64 * K}, 12.96, "docs/cuda.md"},
      {"dense 64K, chunk 8192", {.tokens = 64 * K, .chunk = 8 * K}, 12.50, "docs/cuda.md"},
      {"dense 64K, 4 layers", {.tokens = 64 * K, .layers = 4}, 2.04, "docs/tiers.md"},
      {"dense 64K, 4 layers, streamed",
       {.tokens = 64 * K, .layers = 4, .page_memory = kStreaming},
       2.06,
       "docs/tiers.md"},
      {"dense 128K", {.tokens = 128 * K}, 40.2, "docs/cuda.md"},
      {"dense 128K, exact", {.tokens = 128 * K, .exact = true}, 43.0, "docs/cuda.md"},
      {"dense 128K, streamed",
       {.tokens = 128 * K, .page_memory = kStreaming},
       40.9,
       "docs/tiers.md"},
      {"dense 128K, 2 layers", {.tokens = 128 * K, .layers = 2}, 3.62, "docs/tiers.md"},
      {"dense 128K, 2 layers, streamed",
       {.tokens = 128 * K, .layers = 2, .page_memory = kStreaming},
       3.61,
       "docs/tiers.md"},
      {"dense 256K", {.tokens = 256 * K}, 138.2, "docs/tiers.md"},
      {"dense 256K, chunk 16384", {.tokens = 256 * K, .chunk = 16 * K}, 131.9, "docs/cuda.md"},
      {"dense 256K, streamed",
       {.tokens = 256 * K, .page_memory = kStreaming},
       141.1,
       "docs/tiers.md"},
      {"dense 256K, 7 layers", {.tokens = 256 * K, .layers = 7}, 34.8, "docs/tiers.md"},
      {"dense 256K, 7 layers, streamed",
       {.tokens = 256 * K, .layers = 7, .page_memory = kStreaming},
       35.7,
       "docs/tiers.md"},
      {"dense 1M, 2 layers", {.tokens = M, .layers = 2}, 129.3, "docs/tiers.md"},
      {"dense 1M, 2 layers, streamed",
       {.tokens = M, .layers = 2, .page_memory = kStreaming},
       132.5,
       "docs/tiers.md"},
      {"Qwen3-8B, dense 1M, 2 layers, chunk 8192, streamed",
       {.preset = "qwen3-8b", .tokens = M, .chunk = 8 * K, .layers = 2, .page_memory = kStreaming},
       144.9,
       "README.md"},
      {"Qwen3-8B, dense 1M, 4 layers, chunk 8192, streamed",
       {.preset = "qwen3-8b", .tokens = M, .chunk = 8 * K, .layers = 4, .page_memory = kStreaming},
       299.0,
       "README.md"},
      {"window 1M, 9 GiB of pages",
       {.tokens = M, .window = 1024, .page_memory = 9 * kGiB},
       106.2,
       "docs/tiers.md"},
      {"window 1M, 9 GiB of pages, 32 GiB of host memory, disk",
       {.tokens = M, .window = 1024, .page_memory = 9 * kGiB, .host_memory = 32 * kGiB},
       113.2,
       "docs/tiers.md"},
      {"window 4M, 80 GiB of pages, 104 GiB of host memory, disk",
       {.tokens = 4 * M, .window = 1024, .page_memory = 80 * kGiB, .host_memory = 104 * kGiB},
       425.9,
       "README.md"},
      {"sparse 128K", {.tokens = 128 * K, .budget = 64}, 17.4, "docs/sparse.md"},
      {"sparse 128K, exact",
       {.tokens = 128 * K, .budget = 64, .exact = true},
       17.7,
       "docs/sparse.md"},
      {"sparse 128K, four vectors",
       {.tokens = 128 * K, .budget = 64, .selection = outliers},
       17.6,
       "docs/sparse.md"},
      {"sparse 256K", {.tokens = 256 * K, .budget = 64}, 35.8, "docs/sparse.md"},
      {"sparse 1M, 78 GiB of pages",
       {.tokens = M, .budget = 64, .page_memory = 78 * kGiB},
       143.9,
       "docs/sparse.md"},
      {"sparse 1M, 16 GiB of pages",
       {.tokens = M, .budget = 64, .gradient_pages = kBF16, .page_memory = 16 * kGiB},
       147.3,
       "docs/sparse.md"},
      {"sparse 1M, 38 GiB of pages, 52 GiB of host memory, disk",
       {.tokens = M,
        .budget = 64,
        .gradient_pages = kBF16,
        .page_memory = 38 * kGiB,
        .host_memory = 52 * kGiB},
       148.5,
       "docs/sparse.md"},
      {"1.5B, sparse 4M, 118 GiB of pages",
       {.preset = "qwen2.5-1.5b",
        .tokens = 4 * M,
        .budget = 64,
        .gradient_pages = kBF16,
        .page_memory = 118 * kGiB},
       204.2,
       "docs/sparse.md"},
      // By tokens/s; a training run is exact unless told otherwise.
      {"1.5B, dense 64K, exact, with the update from host memory",
       {.preset = "qwen2.5-1.5b", .tokens = 64 * K, .exact = true},
       65536 / 12665.0,
       "docs/tiers.md",
       18.5e9},
  };
}

}  // namespace longstride
