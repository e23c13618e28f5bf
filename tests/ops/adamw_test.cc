// AdamW without masters and with moments in 8 bits, beyond the cases: where elements are cut makes
// no difference, and stochastic rounding has no bias.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/random.h"
#include "base/thread_pool.h"
#include "ops/optimizer.h"
#include "tensor/dynamic_code.h"
#include "tensor/stochastic_weight.h"

namespace longstride::ops {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// What a value is rounded to by these random bits.
double neighbour(float x, DType dtype, std::uint32_t random) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return dtype == DType::kBF16 ? to_float(bf16{stochastic_bf16(bits, random)})
                               : to_float(f16{stochastic_f16(bits, random)});
}

// A parameter without a master, on the CPU.
struct Parameter {
  Parameter(std::int64_t n, DType weight_type, bool coded_moments)
      : dtype(weight_type), coded(coded_moments), size(n), g(at(n)), weight(2 * at(n)) {
    const std::size_t moments = (coded ? 1 : 4) * at(n);
    m.resize(moments);
    v.resize(moments);
    m_absmax.resize(at((n + kCodeBlock - 1) / kCodeBlock));
    v_absmax = m_absmax;
    Random random(11);
    for (std::int64_t i = 0; i < n; ++i) {
      g[at(i)] = static_cast<float>(random.normal());
      const auto w = static_cast<float>(random.normal());
      const std::uint16_t bits = dtype == DType::kBF16 ? to_bf16(w).bits : to_f16(w).bits;
      std::memcpy(&weight[2 * at(i)], &bits, 2);
    }
  }
  // Elements [first, first + n) of update `step`.
  AdamW part(std::int64_t first, std::int64_t n, std::int64_t step, std::uint64_t key) {
    const auto of = [&](auto& all, DType type, std::int64_t begin, std::int64_t count) {
      return View(reinterpret_cast<std::byte*>(all.data()) + begin * size_of(type), type, {count});
    };
    AdamW args;
    args.g = of(g, DType::kF32, first, n);
    args.weight = of(weight, dtype, first, n);
    const DType moments = coded ? DType::kU8 : DType::kF32;
    args.m = of(m, moments, first, n);
    args.v = of(v, moments, first, n);
    if (coded) {
      const std::int64_t blocks = (n + kCodeBlock - 1) / kCodeBlock;
      args.m_absmax = of(m_absmax, DType::kF32, first / kCodeBlock, blocks);
      args.v_absmax = of(v_absmax, DType::kF32, first / kCodeBlock, blocks);
    }
    args.lr = 1e-3;
    args.weight_decay = 0.1;
    args.step = step;
    args.rounding_key = key;
    args.first_element = first;
    return args;
  }
  float weight_at(std::int64_t i) const {
    std::uint16_t bits = 0;
    std::memcpy(&bits, &weight[2 * at(i)], 2);
    return dtype == DType::kBF16 ? to_float(bf16{bits}) : to_float(f16{bits});
  }
  bool operator==(const Parameter&) const = default;

  DType dtype;
  bool coded;
  std::int64_t size;
  std::vector<float> g;
  std::vector<std::uint8_t> weight, m, v;
  std::vector<float> m_absmax, v_absmax;
};

TEST(AdamWWithoutMasters, TheSameBitsHoweverItIsCut) {
  const auto device = make_cpu_device();
  const int threads = thread_count();
  constexpr std::int64_t kSize = 70'001;
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (const bool coded : {false, true}) {
      const Parameter start(kSize, dtype, coded);
      Parameter whole = start;
      for (std::int64_t step = 1; step <= 3; ++step)
        adamw(device->stream(), whole.part(0, kSize, step, weight_rounding_key(1, step, 5)));
      EXPECT_FALSE(whole == start);
      for (const std::int64_t piece : {256, 768, 65536}) {
        set_thread_count(piece == 768 ? 1 : 3);
        Parameter cut = start;
        for (std::int64_t step = 1; step <= 3; ++step)
          for (std::int64_t at = 0; at < kSize; at += piece)
            adamw(device->stream(),
                  cut.part(at, std::min(piece, kSize - at), step, weight_rounding_key(1, step, 5)));
        EXPECT_TRUE(cut == whole) << name_of(dtype) << " " << coded << " " << piece;
      }
      set_thread_count(threads);
    }
}

// The mean over 1,000 seeds is the update that a master gets, within its standard error.
TEST(AdamWWithoutMasters, HasNoBias) {
  const auto device = make_cpu_device();
  constexpr std::int64_t kSize = 4096, kSeeds = 1000;
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (const bool coded : {false, true}) {
      const Parameter start(kSize, dtype, coded);
      Parameter exact = start;
      std::vector<float> master;
      for (std::int64_t i = 0; i < kSize; ++i) master.push_back(start.weight_at(i));
      AdamW args = exact.part(0, kSize, 1, 0);
      args.weight = {};
      args.master = View(master.data(), DType::kF32, {kSize});
      adamw(device->stream(), args);

      std::vector<double> sum(kSize);
      for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
        Parameter rounded = start;
        adamw(device->stream(), rounded.part(0, kSize, 1, weight_rounding_key(seed, 1, 0)));
        for (std::int64_t i = 0; i < kSize; ++i) sum[at(i)] += rounded.weight_at(i);
      }
      // Errors of the means, in standard errors.
      double total = 0, total_squares = 0, largest = 0, counted = 0;
      for (std::int64_t i = 0; i < kSize; ++i) {
        const double want = master[at(i)], error = sum[at(i)] / kSeeds - want;
        const double low = neighbour(master[at(i)], dtype, 0),
                     high = neighbour(master[at(i)], dtype, 0xffff);
        if (low == high) {
          EXPECT_NEAR(error, 0, 1e-9);
          continue;
        }
        const double share = (want - low) / (high - low), variance = share * (1 - share);
        if (variance < 0.01) continue;  // too rare in 1,000 for a normal distribution
        const double z = error / (std::fabs(high - low) * std::sqrt(variance / kSeeds));
        total += z;
        total_squares += z * z;
        largest = std::max(largest, std::fabs(z));
        counted += 1;
      }
      EXPECT_GT(counted, 0.8 * kSize);
      EXPECT_LT(std::fabs(total / counted), 4 / std::sqrt(counted));
      EXPECT_NEAR(total_squares / counted, 1, 0.15);
      EXPECT_LT(largest, 6);
    }
}

}  // namespace
}  // namespace longstride::ops
