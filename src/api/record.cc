#include "api/record.h"

#include "observe/flops.h"

namespace longstride::api {

double flops_of(const ModelConfig& config, const SparseFlops& sparse,
                std::span<const std::int64_t> document_lengths) {
  return model_flops({matrix_parameter_count(config), config.layers, config.query_heads,
                      config.head_size, config.windows, sparse},
                     document_lengths);
}

StepRecord make_record(const StepReport& report, const RunPlan& plan) {
  StepRecord record;
  static_cast<StepReport&>(record) = report;
  record.time = timestamp();
  record.trainable_parameters = plan.model.trainable_parameters();
  const RunNeeds& needs = plan.worst_needs ? *plan.worst_needs : plan.needs;
  record.bytes = {needs.weights,
                  needs.gradients,
                  needs.optimizer,
                  needs.step.kv_pages,
                  needs.step.kv_gradient_pages,
                  needs.step.workspace,
                  needs.step.summaries + needs.step.wide_pages + needs.step.retained +
                      needs.step.rope + needs.messages_device};
  record.host_optimizer = needs.optimizer_host;
  record.disk_optimizer = needs.optimizer_disk;
  record.host_pages = needs.step.host_pages;
  record.disk_pages = needs.step.disk_pages;
  record.host_activations = needs.step.host_activations;
  record.disk_activations = needs.step.disk_activations;
  record.memory_limit = needs.available;
  const SparseFlops sparse{plan.numerics.sparse.budgets, plan.numerics.chunk_tokens,
                           plan.numerics.page_tokens};
  std::optional<double> peak = peak_flops_per_s(plan.numerics.device);
  if (peak) *peak *= static_cast<double>(report.ranks);
  set_rates(record, flops_of(plan.model.config, sparse, report.document_lengths), peak);
  return record;
}

}  // namespace longstride::api
