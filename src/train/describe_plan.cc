#include "train/describe_plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

#include "base/sizes.h"
#include "plan/allocator_model.h"
#include "train/outlook.h"

namespace longstride {
namespace {

std::string text(std::int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

std::string model_of(const RunPlan& plan) {
  const ModelConfig& m = plan.model.config;
  std::int64_t all = 0, trained = 0;
  for (const ParameterSpec& spec : plan.model.specs) {
    if (spec.derived) continue;
    all += spec.shape.elements();
    trained += spec.trainable ? spec.shape.elements() : 0;
  }
  return fmt::format("{} from {}: {} parameters{}, {} layers, hidden {}", name_of(m.architecture),
                     plan.model.directory ? plan.model.directory->path().string()
                                          : plan.config.model.preset + " (random)",
                     parameter_count(m), trained < all ? fmt::format(" ({} trained)", trained) : "",
                     m.layers, m.hidden_size);
}

// How often the run goes through each source of data.mix.
std::string mix_of(const RunPlan& plan) {
  const DataConfig& data = plan.config.data;
  const TrainingConfig& t = plan.config.training;
  const double all = std::accumulate(data.mix.begin(), data.mix.end(), 0.0),
               samples = static_cast<double>(t.steps) * static_cast<double>(t.batch);
  const std::vector<std::int64_t> counts = plan.samples->samples_of_sources();
  std::string text;
  for (std::size_t i = 0; i < data.mix.size(); ++i) {
    const double share = data.mix[i] / all,
                 epochs = share * samples / static_cast<double>(counts[i]);
    text += fmt::format("{}{:.3g}% {} ({} samples, {:.{}f} epochs)", i == 0 ? "" : ", ",
                        100 * share, data.path[i].string(), counts[i], epochs, epochs < 1 ? 4 : 2);
  }
  return text;
}

std::string data_of(const RunPlan& plan) {
  if (!plan.sources.empty())
    return fmt::format("{} tokens in a mix: {}", plan.corpus->tokens(), mix_of(plan));
  return fmt::format("{} tokens, {} samples an epoch", plan.corpus->tokens(),
                     plan.samples->samples_per_epoch());
}

std::string step_of(const RunPlan& plan) {
  const TrainingConfig& t = plan.config.training;
  return fmt::format("{} x {} tokens in chunks of {}, pages of {}", t.batch, t.context,
                     std::min(*t.chunk, t.context), t.page);
}

std::string evaluations_of(const RunPlan& plan) {
  if (!plan.eval_samples) return "";
  const std::int64_t every = plan.config.eval.every;
  return fmt::format("; evaluates {} samples{}", plan.eval_count(),
                     every > 0 ? fmt::format(" every {} steps", every) : " at the end");
}

std::string steps_of(const RunPlan& plan) {
  const TrainingConfig& t = plan.config.training;
  const double epochs = static_cast<double>(t.steps) * static_cast<double>(t.batch) /
                        static_cast<double>(plan.samples->samples_per_epoch());
  return fmt::format("{}, {:.{}f} epochs", t.steps, epochs, epochs < 1 ? 4 : 2);
}

std::string describe_optimizer(const RunNeeds& n) {
  if (n.optimizer_host + n.optimizer_disk == 0) return text(n.optimizer);
  const std::string disk =
      n.optimizer_disk > 0 ? fmt::format(" and {} on disk", text(n.optimizer_disk)) : "";
  return fmt::format("{}: {} on the host{} pass through it", text(n.optimizer),
                     text(n.optimizer_host), disk);
}

// With the proven gap, and beside it what an allocator at run time would take.
std::string describe_workspace(const RunPlan& plan) {
  const StepMemory& m = plan.needs.step;
  const double least = static_cast<double>(std::max<std::int64_t>(1, m.workspace_bound));
  std::string s = fmt::format("{}, {:.2f}% above the least possible", text(m.workspace),
                              100 * (static_cast<double>(m.workspace) / least - 1));
  if (plan.step) {
    const AllocatorUse other = simulate_allocator(*plan.step);
    s += fmt::format(" (a caching allocator: {}, {:.1f}% of it unused)", text(other.reserved),
                     100 * other.fragmentation());
  }
  return s;
}

std::string describe_attention(const SparseLayers& sparse) {
  const auto layers = std::count_if(sparse.budgets.begin(), sparse.budgets.end(),
                                    [](std::int64_t b) { return b != SparseLayers::kNone; });
  const Selection& s = sparse.selection;
  return fmt::format(
      "sparse in {} of {} layers: up to {} earlier pages ({} first, {} last), {} for a chunk",
      layers, sparse.budgets.size(), sparse.most_pages(), s.sinks, s.recent, s.union_pages);
}

void describe_data(const CorpusFacts& facts,
                   const std::function<void(const char*, const std::string&)>& row) {
  row("documents", fmt::format("{}, the longest of {} tokens, the median of {}", facts.documents,
                               facts.longest_document, facts.median_document));
  const std::int64_t all = facts.targets + facts.masked;
  row("targets",
      fmt::format(
          "{} an epoch, {:.1f}% are masked", facts.targets,
          all == 0 ? 0.0 : 100.0 * static_cast<double>(facts.masked) / static_cast<double>(all)));
  std::uint32_t largest = 0;
  for (const FileFacts& file : facts.files) largest = std::max(largest, file.values.largest);
  if (!facts.files.empty()) row("largest token", fmt::format("{}", largest));
}

// "12.05 GiB: weights 14.19 GiB, pages 54.54 GiB"; tenants of no bytes are left out.
struct Tenant {
  const char* name;
  std::int64_t bytes;
};
std::string tenants(const std::vector<Tenant>& all) {
  std::vector<std::string> parts;
  for (const Tenant& tenant : all)
    if (tenant.bytes > 0) parts.push_back(fmt::format("{} {}", tenant.name, text(tenant.bytes)));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string on_device(const RunNeeds& n) {
  return fmt::format("{}{} of {}: {}", n.step_planned ? "" : "at least ", text(n.total()),
                     text(n.available),
                     tenants({{"weights", n.weights},
                              {"gradients", n.gradients},
                              {"optimizer", n.optimizer},
                              {"pages", n.step.kv_pages},
                              {"page gradients", n.step.kv_gradient_pages},
                              {"page summaries", n.step.summaries},
                              {"wide copies of pages", n.step.wide_pages},
                              {"activations", n.step.retained},
                              {"workspace", n.step.workspace},
                              {"messages", n.messages_device}}));
}

std::string elsewhere(const RunPlan& plan) {
  const RunNeeds& n = plan.needs;
  std::vector<std::string> parts;
  const auto add = [&](const char* where, std::int64_t total, std::int64_t available,
                       const std::vector<Tenant>& all) {
    if (total > 0)
      parts.push_back(
          fmt::format("{} {} of {}: {}", where, text(total), text(available), tenants(all)));
  };
  add("host", n.host_total(), n.host_available,
      {{"optimizer", n.optimizer_host},
       {"pages", n.step.host_pages},
       {"activations", n.step.host_activations},
       {"messages", n.messages}});
  add("disk", n.disk_total(), n.disk_available,
      {{"optimizer", n.optimizer_disk},
       {"pages", n.step.disk_pages},
       {"activations", n.step.disk_activations}});
  parts.push_back(n.saves.available ? fmt::format("a save {} of {} in {}", text(n.saves.bytes),
                                                  text(*n.saves.available),
                                                  plan.config.checkpoint.directory.string())
                                    : fmt::format("a save {}", text(n.saves.bytes)));
  return fmt::format("{}", fmt::join(parts, "; "));
}

std::string activations_of(const RunPlan& plan) {
  if (!plan.step) return "not planned";
  const StepPlan& step = *plan.step;
  if (step.layout().chunks() <= step.schedule.keep_chunks)
    return "all stay until the backward pass";
  const RetentionShares shares = retention_shares(step);
  if (step.memory.retained + step.memory.host_activations + step.memory.disk_activations == 0)
    return "recomputed in the backward pass";
  return fmt::format("kept: {}; swapped: {}; the others recomputed", describe_shares(shares.kept),
                     describe_shares(shares.swapped));
}

std::string predicted(const RunPlan& plan, const std::optional<PredictedStep>& step) {
  if (!step) return "";
  const TrainingConfig& t = plan.config.training;
  const double tokens = static_cast<double>(t.batch) * static_cast<double>(t.context);
  // Without exponents, which are hard to read.
  const auto number = [](double x) {
    return x < 1000 ? fmt::format("{:.3g}", x) : fmt::format("{:.0f}", x);
  };
  return fmt::format("; predicted: {} s, {} tokens/s{}", number(step->seconds),
                     number(tokens / step->seconds),
                     step->rough ? " (rough; longstride calibrate measures this machine)" : "");
}

}  // namespace

std::string summarize(const RunPlan& plan, const std::optional<PredictedStep>& step) {
  std::string s;
  const auto row = [&](const char* name, const std::string& value) {
    s += fmt::format("  {:<12} {}\n", name, value);
  };
  const std::string sparse =
      plan.numerics.sparse.any() ? "; " + describe_attention(plan.numerics.sparse) : "";
  row("model", model_of(plan) + sparse);
  row("data", fmt::format("{}; steps: {}{}", data_of(plan), steps_of(plan), evaluations_of(plan)));
  row("step", step_of(plan) + predicted(plan, step));
  row("activations", activations_of(plan));
  row("device", fmt::format("{}, {}", plan.numerics.device, on_device(plan.needs)));
  row("elsewhere", elsewhere(plan));
  return s;
}

std::string describe(const RunPlan& plan, const CorpusFacts& facts,
                     const std::optional<PredictedStep>& step) {
  std::string s;
  const auto row = [&](const char* name, const std::string& value) {
    s += fmt::format("  {:<20} {}\n", name, value);
  };
  row("model", model_of(plan));
  const std::int64_t trained = plan.model.trainable_parameters(),
                     parameters = parameter_count(plan.model.config);
  row("trained", trained == parameters ? fmt::format("all {} parameters", parameters)
                                       : fmt::format("{} of {} parameters", trained, parameters));
  row("data", data_of(plan));
  describe_data(facts, row);
  row("step", step_of(plan) + predicted(plan, step));
  if (plan.numerics.sparse.any()) row("attention", describe_attention(plan.numerics.sparse));
  row("steps", steps_of(plan) + evaluations_of(plan));
  row("kernels", fmt::format("{}, {}", plan.numerics.device, plan.numerics.kernels));
  row("weights", text(plan.needs.weights));
  row("gradients", text(plan.needs.gradients));
  row("optimizer", describe_optimizer(plan.needs));
  row("KV pages", text(plan.needs.step.kv_pages));
  if (plan.needs.step_planned) {
    row("KV gradient pages", text(plan.needs.step.kv_gradient_pages));
    if (plan.needs.step.wide_pages > 0)
      row("wide copies of pages", text(plan.needs.step.wide_pages));
    if (plan.needs.step.summaries > 0) row("page summaries", text(plan.needs.step.summaries));
    if (plan.needs.step.retained > 0)
      row("activations",
          fmt::format("{} stay and save {:.4g} TFLOP of recomputation a sequence",
                      text(plan.needs.step.retained), plan.needs.saved_flops * 1e-12));
    row("workspace", describe_workspace(plan));
  }
  if (plan.needs.messages_device > 0) row("messages", text(plan.needs.messages_device));
  if (plan.needs.step.host_pages > 0) row("pages on the host", text(plan.needs.step.host_pages));
  if (plan.needs.step.disk_pages > 0) row("pages on disk", text(plan.needs.step.disk_pages));
  if (const StepMemory& memory = plan.needs.step;
      memory.host_activations + memory.disk_activations > 0)
    row("activations off it",
        fmt::format("{} on the host, {} on disk", text(memory.host_activations),
                    text(memory.disk_activations)));
  row("together", fmt::format("{}{} of {} available", plan.needs.step_planned ? "" : "at least ",
                              text(plan.needs.total()), text(plan.needs.available)));
  if (plan.needs.host_total() > 0)
    row("on the host", fmt::format("{} of {} available", text(plan.needs.host_total()),
                                   text(plan.needs.host_available)));
  if (plan.needs.disk_total() > 0)
    row("on disk", fmt::format("{} of {} available", text(plan.needs.disk_total()),
                               text(plan.needs.disk_available)));
  if (plan.needs.saves.available)
    row("a save",
        fmt::format("{} of {} free in {}", text(plan.needs.saves.bytes),
                    text(*plan.needs.saves.available), plan.config.checkpoint.directory.string()));
  return s;
}

}  // namespace longstride
