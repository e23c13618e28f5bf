#include "observe/step_record.h"

#include <fmt/format.h>

#include <cmath>

namespace longstride {
namespace {

OrderedJson finite(double x) { return std::isfinite(x) ? OrderedJson(x) : OrderedJson(nullptr); }

// Four digits that say something, for figures that span laptops and clusters.
std::string rate(double x) {
  const int decimals = x >= 100 ? 0 : x >= 10 ? 1 : x >= 1 ? 2 : 4;
  return fmt::format("{:.{}f}", x, decimals);
}

}  // namespace

void set_rates(StepRecord& record, double model_flops, std::optional<double> peak_flops_per_s) {
  const double seconds = record.seconds.total;
  const double per_second = seconds > 0 ? 1.0 / seconds : 0.0;
  record.tokens_per_s = static_cast<double>(record.tokens) * per_second;
  record.tflops = model_flops * per_second * 1e-12;
  record.mfu.reset();
  if (peak_flops_per_s) record.mfu = model_flops * per_second / *peak_flops_per_s;
}

std::string format_step_line(const StepRecord& r) {
  constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
  const auto used = static_cast<double>(r.bytes.total());
  std::string line =
      fmt::format("step {}/{} | loss {:.4f} | grad {:.3f} | lr {:.2e} | {:.2f} GiB", r.step,
                  r.total_steps, r.loss, r.gradient_norm, r.learning_rate, used / kGiB);
  if (r.memory_limit > 0)
    line += fmt::format(" ({:.0f}%)", 100.0 * used / static_cast<double>(r.memory_limit));
  line += fmt::format(" | {} tok/s | {} TFLOP/s", rate(r.tokens_per_s), rate(r.tflops));
  if (r.mfu) line += fmt::format(" | MFU {:.1f}%", 100.0 * *r.mfu);
  if (r.moved_out + r.moved_in > 0)
    line += fmt::format(" | pages {:.2f} GiB out, {:.2f} GiB in, {:.0f}% hidden",
                        static_cast<double>(r.moved_out) / kGiB,
                        static_cast<double>(r.moved_in) / kGiB, 100.0 * r.hidden_share);
  if (r.skipped) line += " | skipped";
  return line;
}

OrderedJson record_to_json(const StepRecord& r) {
  OrderedJson out;
  out["step"] = r.step;
  out["total_steps"] = r.total_steps;
  out["loss"] = finite(r.loss);
  out["gradient_norm"] = finite(r.gradient_norm);
  out["learning_rate"] = finite(r.learning_rate);
  out["tokens"] = r.tokens;
  out["targets"] = r.targets;
  out["accuracy"] = finite(r.accuracy);
  out["seconds"] = finite(r.seconds.total);
  out["seconds_forward"] = finite(r.seconds.forward);
  out["seconds_recompute"] = finite(r.seconds.recompute);
  out["seconds_backward"] = finite(r.seconds.backward);
  out["seconds_update"] = finite(r.seconds.update);
  out["tokens_per_s"] = finite(r.tokens_per_s);
  out["tflops"] = finite(r.tflops);
  out["mfu"] = r.mfu ? finite(*r.mfu) : OrderedJson(nullptr);
  out["bytes"] = r.bytes.total();
  out["bytes_weights"] = r.bytes.weights;
  out["bytes_gradients"] = r.bytes.gradients;
  out["bytes_optimizer"] = r.bytes.optimizer;
  out["bytes_kv_pages"] = r.bytes.kv_pages;
  out["bytes_kv_gradient_pages"] = r.bytes.kv_gradient_pages;
  out["bytes_workspace"] = r.bytes.workspace;
  out["bytes_other"] = r.bytes.other;
  out["bytes_host_optimizer"] = r.host_optimizer;
  out["bytes_disk_optimizer"] = r.disk_optimizer;
  out["bytes_host_pages"] = r.host_pages;
  out["bytes_disk_pages"] = r.disk_pages;
  out["bytes_moved_out"] = r.moved_out;
  out["bytes_moved_in"] = r.moved_in;
  out["hidden_share"] = finite(r.hidden_share);
  out["bytes_limit"] = r.memory_limit > 0 ? OrderedJson(r.memory_limit) : OrderedJson(nullptr);
  out["peak_rss"] = r.peak_rss;
  out["skipped"] = r.skipped;
  return out;
}

}  // namespace longstride
