#include "ops/embedding.h"

#include <algorithm>

#include "base/error.h"
#include "base/thread_pool.h"
#include "ops/cpu/widen.h"
#include "tensor/token_rows.h"

namespace longstride::ops::cpu {
namespace {

void check_tokens(const EmbeddingForward& args) {
  const std::int32_t* tokens = args.tokens_T.as<std::int32_t>();
  const std::int64_t V = args.table_VD.dim(0);
  for (std::int64_t t = 0; t < args.tokens_T.dim(0); ++t)
    LS_CHECK(tokens[t] >= 0 && tokens[t] < V, "token {} at {} of a vocabulary of {}", tokens[t], t,
             V);
}

void check_groups(const EmbeddingBackward& args) {
  const std::int64_t T = args.dy_TD.dim(0), G = args.groups_G4.dim(0);
  const auto* groups = reinterpret_cast<const TokenGroup*>(args.groups_G4.as<std::int32_t>());
  for (std::int64_t g = 0; g < G; ++g) {
    LS_CHECK(groups[g].token >= 0 && groups[g].token < args.dtable_VD.dim(0) &&
                 groups[g].begin >= 0 && groups[g].count >= 0 &&
                 groups[g].count <= T - groups[g].begin,
             "group {}: token {} of a vocabulary of {}, rows {} + {} of {}", g, groups[g].token,
             args.dtable_VD.dim(0), groups[g].begin, groups[g].count, T);
  }
}

}  // namespace

void embedding_forward(Stream&, const EmbeddingForward& args) {
  check_tokens(args);
  constexpr std::int64_t kRows = 32;
  const std::int64_t T = args.y_TD.dim(0), D = args.y_TD.dim(1);
  const std::int32_t* tokens = args.tokens_T.as<std::int32_t>();
  float* y = args.y_TD.as<float>();
  parallel_for(pieces_of(T, kRows), [&](std::int64_t piece) {
    const std::int64_t end = std::min(T, (piece + 1) * kRows);
    for (std::int64_t t = piece * kRows; t < end; ++t) {
      float* const row = y + t * D;
      widen(args.table_VD, std::int64_t{tokens[t]} * D, D, row);
      if (args.scale == 1.0f) continue;
      for (std::int64_t i = 0; i < D; ++i) row[i] *= args.scale;
    }
  });
}

// Split by columns, so that pieces have equal sizes whatever the tokens.
void embedding_backward(Stream&, const EmbeddingBackward& args) {
  if (!args.dtable_VD.present()) return;
  check_groups(args);
  constexpr std::int64_t kColumns = 128;
  const std::int64_t G = args.groups_G4.dim(0), D = args.dy_TD.dim(1);
  const auto* groups = reinterpret_cast<const TokenGroup*>(args.groups_G4.as<std::int32_t>());
  const std::int32_t* rows = args.rows_T.as<std::int32_t>();
  const float* dy = args.dy_TD.as<float>();
  float* dtable = args.dtable_VD.as<float>();
  const float scale = args.scale;  // a product with 1 is exact
  parallel_for(pieces_of(D, kColumns), [&](std::int64_t piece) {
    const std::int64_t begin = piece * kColumns, n = std::min(kColumns, D - begin);
    for (std::int64_t g = 0; g < G; ++g) {
      float* to = dtable + std::int64_t{groups[g].token} * D + begin;
      for (std::int32_t r = groups[g].begin; r < groups[g].begin + groups[g].count; ++r) {
        const float* from = dy + std::int64_t{rows[r]} * D + begin;
#pragma omp simd
        for (std::int64_t i = 0; i < n; ++i) to[i] += scale * from[i];
      }
    }
  });
}

}  // namespace longstride::ops::cpu
