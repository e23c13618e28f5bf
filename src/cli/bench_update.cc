#include "cli/bench_update.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/sizes.h"

namespace longstride::cli {
namespace {

double seconds_of(const auto& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

OrderedJson bench_update(const ModelConfig& config, ParameterSet& weights,
                         const ParameterSet& gradients, std::int64_t updates,
                         const std::string& where) {
  const OptimizerConfig options;
  const StateOptions state{where == "host" ? StatePlace::kHost : StatePlace::kDevice};
  Device& device = weights.device();
  const StateBytes needed = Optimizer::bytes_needed(config, weights.dtypes(), state);
  if (const std::int64_t free = device.available_host_bytes(); needed.host > free)
    throw Error(fmt::format("--optimizer host: its state needs {} and the host has {} free",
                            format_bytes(static_cast<double>(needed.host)),
                            format_bytes(static_cast<double>(free))),
                "give --optimizer device, or fewer --layers");
  std::unique_ptr<Optimizer> optimizer;
  const double start_s =
      seconds_of([&] { optimizer = std::make_unique<Optimizer>(config, weights, options, state); });
  optimizer->state().take_times();
  std::vector<double> seconds;
  for (std::int64_t i = 0; i < updates; ++i)
    seconds.push_back(seconds_of([&] {
      const double norm = optimizer->gradient_norm(gradients);
      optimizer->update(gradients, options.learning_rate,
                        norm > options.clip_norm ? options.clip_norm / norm : 1.0, i + 1);
    }));
  const MoveTimes moves = optimizer->state().take_times();
  const double best = *std::min_element(seconds.begin(), seconds.end()),
               n = static_cast<double>(updates);
  const StateBytes bytes = optimizer->state().bytes();
  const double rate = 1e-9 * static_cast<double>(bytes.host);
  log_info("update, optimizer on the {}: {:.3f} s ({} on the device, {} on the host)", where, best,
           format_bytes(static_cast<double>(bytes.device)),
           format_bytes(static_cast<double>(bytes.host)));
  if (bytes.host > 0)
    log_info(
        "an update's copies: {:.1f} GB/s each way over all of it, {:.3f} s in, {:.3f} s out, "
        "computing waited for {:.3f} s",
        rate / best, moves.from_host_s / n, moves.to_host_s / n, moves.blocked_s / n);
  return {{"optimizer", where},
          {"updates", updates},
          {"bytes_device", bytes.device},
          {"bytes_host", bytes.host},
          {"seconds_start", start_s},
          {"seconds", seconds},
          {"seconds_best", best},
          // Means of one update.
          {"seconds_from_host", moves.from_host_s / n},
          {"seconds_to_host", moves.to_host_s / n},
          {"seconds_blocked", moves.blocked_s / n}};
}

}  // namespace longstride::cli
