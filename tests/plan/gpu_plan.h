// Plans of steps on a GPU, made without one: everything that their prediction depends on, but no
// workspace.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/presets.h"
#include "plan/step_cost.h"

namespace longstride {

struct GpuStep {
  std::string preset = "qwen2.5-7b";
  std::int64_t tokens = 0;
  std::int64_t chunk = 4096, keep_chunks = 1, layers = 0, window = 0;  // layers 0: all
  std::int64_t budget = SparseLayers::kNone;                           // of sparse layers, in pages
  Selection selection = {};
  bool exact = false;
  DType gradient_pages = DType::kF32;
  std::optional<DType> kv_codes = {};  // of all layers but the first
  std::int64_t second_window = 0;      // of every second layer, which is not sparse then
  std::int64_t page_memory = PageBudget::kAll, host_memory = PageBudget::kAll;
  std::vector<Retention> across_episodes = {};

  static constexpr std::int64_t kStreaming = -2;  // page_memory: enough to overlap copies

  ModelConfig config() const {
    ModelConfig c = find_preset(preset);
    if (layers > 0) c.layers = layers;
    c.windows.assign(static_cast<std::size_t>(c.layers), window);
    for (std::size_t l = 1; second_window > 0 && l < c.windows.size(); l += 2)
      c.windows[l] = second_window;
    return c;
  }

  NumericsRecord numerics() const {
    NumericsRecord r;
    r.chunk_tokens = chunk;
    r.page_tokens = 128;
    r.head_block_rows = 2048;
    r.compute = DType::kBF16;
    r.kv_gradient_dtype = gradient_pages;
    r.determinism = exact ? Determinism::kExact : Determinism::kFast;
    const auto all = static_cast<std::size_t>(config().layers);
    if (budget != SparseLayers::kNone) {
      r.sparse = {selection, std::vector<std::int64_t>(all, budget)};
      for (std::size_t l = 1; second_window > 0 && l < all; l += 2)
        r.sparse.budgets[l] = SparseLayers::kNone;
    }
    if (kv_codes) {
      std::vector<PageTypes> types(all, {*kv_codes, gradient_pages});
      types[0].kv = r.compute;
      r.set_pages(types);
      if (is_page_code(gradient_pages)) r.hot_pages = 64;
    }
    return r;
  }

  StepPlan plan() const {
    const ModelConfig c = config();
    const NumericsRecord r = numerics();
    StepPlan plan;
    plan.max_tokens = tokens;
    plan.chunk_tokens = chunk;
    plan.page_tokens = r.page_tokens;
    plan.schedule.windows = c.windows;
    plan.schedule.keep_chunks = keep_chunks;
    plan.schedule.across_episodes = across_episodes;
    plan.schedule.sparse = r.sparse;
    // As ops/cuda/attention_segments.h cuts them.
    plan.schedule.forward_cut = {.tokens = 32768, .documents_apart = true, .even_tokens = 1024};
    plan.schedule.backward_cut = {.tokens = exact ? 16384 : 32768,
                                  .own_apart = true,
                                  .documents_apart = true,
                                  .even_tokens = 1024};
    const SequenceLayout layout = plan.layout();
    const StepSchedule schedule = make_step_schedule(layout, plan.schedule);
    const KvShape shape = kv_shape(c, r);
    PageBudget pages{.device = page_memory, .host = host_memory, .disk = PageBudget::kAll};
    if (page_memory == kStreaming) pages.device = streaming_device_bytes(layout, schedule, shape);
    plan.pages = spread_pages(layout, schedule, shape, pages).capacity;
    return plan;
  }

  StepCost predict(const MachineRates& rates) const {
    return predict_step(config(), numerics(), plan(), rates);
  }
};

}  // namespace longstride
