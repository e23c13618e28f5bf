// StepRecord: the report of an optimizer step with rates and memory, and its line on the console.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/json.h"
#include "train/run_sinks.h"

namespace longstride {

// Bytes reserved per tenant on the device.
struct TenantBytes {
  std::int64_t weights = 0;
  std::int64_t gradients = 0;
  std::int64_t optimizer = 0;
  std::int64_t kv_pages = 0;
  std::int64_t kv_gradient_pages = 0;
  std::int64_t workspace = 0;
  std::int64_t other = 0;
  std::int64_t total() const {
    return weights + gradients + optimizer + kv_pages + kv_gradient_pages + workspace + other;
  }
};

struct StepRecord : StepReport {
  std::string time;                    // when the step ended: 2026-01-31T12:00:00.123Z
  double elapsed = 0;                  // seconds since this process began its first step
  std::optional<double> seconds_left;  // of the run, estimated from the steps so far
  double tokens_per_s = 0;
  double tflops = 0;          // model FLOPs (observe/flops.h) per second, in 10^12
  std::optional<double> mfu;  // tflops as a share of the device's peak, if known
  std::int64_t trainable_parameters = 0;
  // Of several processes, these are the worst one's (RunRanks::worst).
  TenantBytes bytes;
  std::int64_t host_optimizer = 0, disk_optimizer = 0;      // offloaded optimizer state
  std::int64_t host_pages = 0, disk_pages = 0;              // capacity for offloaded pages
  std::int64_t host_activations = 0, disk_activations = 0;  // likewise
  std::int64_t memory_limit = 0;                            // device memory for the run; 0: unknown
};

// Fills tokens_per_s, tflops and mfu from tokens, seconds.total and the model FLOPs of the step.
void set_rates(StepRecord& record, double model_flops,
               std::optional<double> peak_flops_per_s = std::nullopt);

// step 12/100  loss 3.2188  grad 1.20  lr 1.0e-04  3210 tok/s  MFU 41%  0:41<1:10
// The last part is the time since the start and the time left. At most 80 columns: the least
// important parts are dropped first (memory, MFU, learning rate, gradient).
std::string format_step_line(const StepRecord& record);

// Now, in UTC.
std::string timestamp();
// 0:41, 1:10:05, 3d04h.
std::string format_duration(double seconds);

// One flat object; keys and their meaning are in docs/metrics.md. Values that are unknown or not
// finite are null.
OrderedJson record_to_json(const StepRecord& record);

}  // namespace longstride
