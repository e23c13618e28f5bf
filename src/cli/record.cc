#include "cli/record.h"

#include "observe/flops.h"
#include "observe/process_memory.h"

namespace longstride::cli {

double flops_of(const ModelConfig& config, std::span<const std::int64_t> document_lengths) {
  return model_flops({matrix_parameter_count(config), config.layers, config.query_heads,
                      config.head_size, config.windows},
                     document_lengths);
}

StepRecord make_record(const StepReport& report, const RunPlan& plan) {
  StepRecord record;
  record.time = timestamp();
  record.step = report.step;
  record.total_steps = report.total_steps;
  record.loss = report.loss;
  record.gradient_norm = report.gradient_norm;
  record.learning_rate = report.learning_rate;
  record.tokens = report.tokens;
  record.targets = report.counted;
  record.samples = report.samples;
  record.epochs = report.epochs;
  record.accuracy = static_cast<double>(report.correct) / static_cast<double>(report.counted);
  record.seconds = {report.total_s, report.forward_s, report.recompute_s, report.backward_s,
                    report.update_s};
  const RunNeeds& needs = plan.needs;
  record.bytes = {needs.weights,
                  needs.gradients,
                  needs.optimizer,
                  needs.step.kv_pages,
                  needs.step.kv_gradient_pages,
                  needs.step.workspace,
                  0};
  record.host_optimizer = needs.optimizer_host;
  record.disk_optimizer = needs.optimizer_disk;
  record.host_pages = needs.step.host_pages;
  record.disk_pages = needs.step.disk_pages;
  record.moved_out = report.moved_out;
  record.moved_in = report.moved_in;
  record.hidden_share = report.move_times.hidden_share();
  record.memory_limit = needs.available;
  record.peak_rss = peak_resident_bytes();
  record.skipped = report.skipped;
  set_rates(record, flops_of(plan.model.config, report.document_lengths),
            peak_flops_per_s(plan.numerics.device));
  return record;
}

}  // namespace longstride::cli
