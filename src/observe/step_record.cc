#include "observe/step_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <vector>

namespace longstride {
namespace {

OrderedJson finite(double x) { return std::isfinite(x) ? OrderedJson(x) : OrderedJson(nullptr); }

// Three significant digits, for rates from laptops to clusters.
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

std::string timestamp() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", utc.tm_year + 1900,
                     utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
                     milliseconds);
}

std::string format_duration(double seconds) {
  const auto all = static_cast<std::int64_t>(std::clamp(seconds, 0.0, 1e12));
  const std::int64_t days = all / 86400, h = all / 3600 % 24, m = all / 60 % 60, s = all % 60;
  if (days > 0) return fmt::format("{}d{:02}h", days, h);
  return h > 0 ? fmt::format("{}:{:02}:{:02}", h, m, s) : fmt::format("{}:{:02}", m, s);
}

std::string format_step_line(const StepRecord& r) {
  constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
  constexpr std::size_t kColumns = 80;
  struct Part {
    std::string text;
    int wanted;  // priority; 0: always shown
  };
  std::vector<Part> parts = {{fmt::format("step {}/{}", r.step, r.total_steps), 0},
                             {fmt::format("loss {:.4f}", r.loss), 0}};
  if (r.skipped) parts.push_back({"skipped", 0});
  parts.push_back({fmt::format("grad {}", rate(r.gradient_norm)), 4});
  parts.push_back({fmt::format("lr {:.1e}", r.learning_rate), 3});
  parts.push_back({fmt::format("{} tok/s", rate(r.tokens_per_s)), 0});
  if (r.mfu) parts.push_back({fmt::format("MFU {:.0f}%", 100.0 * *r.mfu), 2});
  parts.push_back({fmt::format("{:.1f} GiB", static_cast<double>(r.bytes.total()) / kGiB), 1});
  parts.push_back(
      {format_duration(r.elapsed) + (r.seconds_left ? "<" + format_duration(*r.seconds_left) : ""),
       0});
  const auto line = [&] {
    std::string text;
    for (const Part& part : parts) text += (text.empty() ? "" : "  ") + part.text;
    return text;
  };
  for (int drop = 1; drop <= 4 && line().size() > kColumns; ++drop)
    std::erase_if(parts, [&](const Part& part) { return part.wanted == drop; });
  return line();
}

OrderedJson record_to_json(const StepRecord& r) {
  OrderedJson out;
  out["time"] = r.time;
  out["step"] = r.step;
  out["total_steps"] = r.total_steps;
  out["loss"] = finite(r.loss);
  out["gradient_norm"] = finite(r.gradient_norm);
  out["learning_rate"] = finite(r.learning_rate);
  out["tokens"] = r.tokens;
  out["targets"] = r.targets;
  out["accuracy"] = finite(r.accuracy());
  out["epoch"] = finite(r.epochs);
  out["sample"] = r.samples;
  out["elapsed"] = finite(r.elapsed);
  out["seconds_left"] = r.seconds_left ? finite(*r.seconds_left) : OrderedJson(nullptr);
  out["seconds"] = finite(r.seconds.total);
  out["seconds_forward"] = finite(r.seconds.forward);
  out["seconds_recompute"] = finite(r.seconds.recompute);
  out["seconds_backward"] = finite(r.seconds.backward);
  out["seconds_update"] = finite(r.seconds.update);
  out["tokens_per_s"] = finite(r.tokens_per_s);
  out["tflops"] = finite(r.tflops);
  out["mfu"] = r.mfu ? finite(*r.mfu) : OrderedJson(nullptr);
  out["trainable_parameters"] = r.trainable_parameters;
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
  out["bytes_host_activations"] = r.host_activations;
  out["bytes_disk_activations"] = r.disk_activations;
  out["bytes_moved_out"] = r.moved.out;
  out["bytes_moved_in"] = r.moved.in;
  out["hidden_share"] = finite(r.move_times.hidden_share());
  if (r.selection.unions > 0) {
    out["union_pages_mean"] = finite(r.selection.mean_union());
    out["union_pages_most"] = r.selection.most;
    out["selected_page_reuse"] = finite(r.selection.reuse());
  }
  if (r.ranks > 1) {
    out["ranks"] = r.ranks;
    out["bytes_sent"] = r.bytes_sent;
    out["seconds_waiting"] = finite(r.seconds_waiting);
  }
  out["bytes_limit"] = r.memory_limit > 0 ? OrderedJson(r.memory_limit) : OrderedJson(nullptr);
  out["peak_rss"] = r.peak_rss;
  out["skipped"] = r.skipped;
  return out;
}

}  // namespace longstride
