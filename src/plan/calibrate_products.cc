#include <algorithm>

#include "ops/elementwise.h"
#include "ops/linear.h"
#include "ops/optimizer.h"
#include "ops/swiglu.h"
#include "plan/calibration_fit.h"
#include "plan/calibration_parts.h"

namespace longstride {
namespace {

double count(std::int64_t n) { return static_cast<double>(n); }

View linear_scratch(CalibrationBench& bench, std::int64_t rows, ConstView w_OI) {
  return bench.scratch(ops::linear_scratch_elements(bench.stream(), {rows, w_OI, bench.compute()}));
}

TimedProduct time_forward(CalibrationBench& bench, std::int64_t rows, std::int64_t inner,
                          std::int64_t outer) {
  const View x = bench.noise({rows, inner}), w = bench.noise({outer, inner}),
             y = bench.noise({rows, outer}), scratch = linear_scratch(bench, rows, w);
  const double seconds = bench.time([&] {
    ops::linear_forward(bench.stream(), {.x_RI = x, .w_OI = w, .y_RO = y, .scratch = scratch});
  });
  bench.clear();
  return {count(rows), count(inner), count(outer), seconds};
}

// dx = dy W: a product over the outputs.
TimedProduct time_dx(CalibrationBench& bench, std::int64_t rows, std::int64_t inner,
                     std::int64_t outer) {
  const View dy = bench.noise({rows, outer}), w = bench.noise({outer, inner}),
             dx = bench.noise({rows, inner}), scratch = linear_scratch(bench, rows, w);
  const double seconds = bench.time([&] {
    ops::linear_backward(bench.stream(), {.dy_RO = dy, .w_OI = w, .dx_RI = dx, .scratch = scratch});
  });
  bench.clear();
  return {count(rows), count(outer), count(inner), seconds};
}

// dW += dy^T x: a product over the rows.
TimedProduct time_dw(CalibrationBench& bench, std::int64_t rows, std::int64_t inner,
                     std::int64_t outer) {
  const View dy = bench.noise({rows, outer}), x = bench.noise({rows, inner}),
             dw = bench.noise(DType::kF32, {outer, inner});
  const View scratch =
      linear_scratch(bench, rows, ConstView(nullptr, bench.compute(), {outer, inner}));
  const double seconds = bench.time([&] {
    ops::linear_backward(bench.stream(), {.dy_RO = dy, .x_RI = x, .dw_OI = dw, .scratch = scratch});
  });
  bench.clear();
  return {count(outer), count(rows), count(inner), seconds};
}

}  // namespace

void calibrate_memory(CalibrationBench& bench, const CalibrationShapes& s, MachineRates& rates) {
  {
    const View gate = bench.noise({s.chunk, s.ffn}), up = bench.noise({s.chunk, s.ffn}),
               y = bench.noise({s.chunk, s.ffn});
    rates.memory = count(3 * y.bytes()) / bench.time([&] {
      ops::swiglu_forward(bench.stream(), {gate, up, y});
    });
    bench.clear();
  }
  {
    const Shape n{s.update_elements};
    const View g = bench.noise(DType::kF32, n), master = bench.noise(DType::kF32, n),
               m = bench.noise(DType::kF32, n), v = bench.scratch(s.update_elements),
               weight = bench.noise(DType::kBF16, n);
    const double seconds = bench.time([&] {
      ops::adamw(bench.stream(),
                 {.g = g, .master = master, .m = m, .v = v, .weight = weight, .lr = 1e-9});
    });
    rates.update =
        count(g.bytes() + 2 * (master.bytes() + m.bytes() + v.bytes()) + weight.bytes()) / seconds;
    bench.clear();
  }
  // A task has about so many operations, each of which takes a while even if it does nothing.
  constexpr double kOperationsOfTask = 16;
  const View a = bench.noise({8}), b = bench.noise({8}), y = bench.noise({8});
  rates.task_overhead = kOperationsOfTask * bench.time([&] {
    ops::add(bench.stream(), {a, b, y});
  });
  bench.clear();
}

void calibrate_products(CalibrationBench& bench, const CalibrationShapes& s, MachineRates& rates) {
  const std::int64_t T = s.chunk, D = s.hidden, F = s.ffn,
                     K = s.kv_heads * CalibrationShapes::kHeadSize;
  rates.products = fit_products({time_forward(bench, T, D, D), time_forward(bench, T, D, F),
                                 time_forward(bench, T, F, D), time_forward(bench, T, D, K),
                                 time_forward(bench, T / 4, D, D), time_dx(bench, T, D, F)});
  const TimedProduct dw = time_dw(bench, T, D, F);
  const double bytes = 2 * count(size_of(DType::kF32)) * dw.rows * dw.outer,
               product = dw.flops() / rates.products.rate(dw.rows, dw.inner, dw.outer);
  // Sums that products hide altogether: three times as fast as memory.
  rates.gradient_sums = bytes / std::max(dw.seconds - product, bytes / (3 * rates.memory));
  rates.loss_head = fit_peak({time_forward(bench, s.head_rows, D, s.vocabulary),
                              time_dx(bench, s.head_rows, D, s.vocabulary)},
                             rates.products);
}

}  // namespace longstride
