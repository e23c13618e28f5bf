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

std::string text(std::int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

void check_room(const StateBytes& needed, const UpdateBench& bench, const Device& device) {
  if (const std::int64_t free = device.available_host_bytes(); needed.host > free)
    throw Error(fmt::format("--optimizer {}: its state needs {} of host memory and {} are free",
                            bench.where, text(needed.host), text(free)),
                "give --optimizer device, or disk with a smaller --host-memory, or fewer --layers");
  if (bench.disk_bytes && needed.disk > *bench.disk_bytes)
    throw Error(fmt::format("--optimizer disk: its state needs {} on disk and --disk-memory leaves "
                            "{}",
                            text(needed.disk), text(*bench.disk_bytes)),
                "raise --disk-memory or --host-memory, or give fewer --layers");
}

}  // namespace

OrderedJson bench_update(Engine& engine, const UpdateBench& bench) {
  const OptimizerConfig& options = bench.options;
  check_room(Optimizer::bytes_needed(engine.weights().specs(), options, bench.state), bench,
             engine.device());
  const double start_s = seconds_of([&] { engine.prepare_optimizer(options, bench.state); });
  Optimizer* const optimizer = &engine.optimizer();
  optimizer->state().take_times();
  std::vector<double> seconds;
  for (std::int64_t i = 0; i < bench.updates; ++i)
    seconds.push_back(seconds_of([&] {
      const double norm = engine.gradient_norm();
      engine.update(options.learning_rate,
                    norm > options.clip_norm ? options.clip_norm / norm : 1.0, i + 1);
    }));
  const OffloadTimes moves = optimizer->state().take_times();
  const double best = *std::min_element(seconds.begin(), seconds.end()),
               n = static_cast<double>(bench.updates);
  const StateBytes bytes = optimizer->state().bytes();
  log_info("update, optimizer on the {}: {:.3f} s ({} on the device, {} on the host, {} on disk)",
           bench.where, best, text(bytes.device), text(bytes.host), text(bytes.disk));
  if (bytes.host > 0) {
    StateOptions all = bench.state;
    all.place = StatePlace::kHost;  // without disk buffers
    const std::int64_t moved = Optimizer::bytes_needed(engine.weights().specs(), options, all).host;
    log_info(
        "an update's copies: {:.1f} GB/s each way over all of it, {:.3f} s in, {:.3f} s out, the "
        "disk busy for {:.3f} s, computing "
        "waited for {:.3f} s: {:.1f}% hidden",
        1e-9 * static_cast<double>(moved) / best, moves.copies.from_host_s / n,
        moves.copies.to_host_s / n, moves.disk_s / n, moves.blocked_s() / n,
        100 * moves.hidden_share());
  }
  return {{"optimizer", bench.where},
          {"state", options.state},
          {"masters", optimizer->has_masters()},
          {"updates", bench.updates},
          {"bytes_device", bytes.device},
          {"bytes_host", bytes.host},
          {"bytes_disk", bytes.disk},
          {"seconds_start", start_s},
          {"seconds", seconds},
          {"seconds_best", best},
          // Means of one update.
          {"seconds_from_host", moves.copies.from_host_s / n},
          {"seconds_to_host", moves.copies.to_host_s / n},
          {"seconds_disk", moves.disk_s / n},
          {"seconds_blocked", moves.blocked_s() / n},
          {"hidden_share", moves.hidden_share()}};
}

}  // namespace longstride::cli
