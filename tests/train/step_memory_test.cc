// Memory of a step: known beforehand, and, except for pages, the same at any context.
#include <gtest/gtest.h>

#include "model/presets.h"
#include "tests/train/step_fixture.h"

namespace longstride {
namespace {

StepMemory memory_at(ModelConfig config, std::int64_t context, std::int64_t window,
                     std::int64_t keep = 1) {
  config.windows.assign(static_cast<std::size_t>(config.layers), window);
  const auto device = make_cpu_device();
  return plan_step(*device, config, parameter_specs(config),
                   choose_numerics(*device, config, 1024, 128), {context, keep})
      .memory;
}

TEST(StepMemoryTest, WorkspaceDoesNotGrowWithTheContext) {
  const ModelConfig config = find_preset("qwen2.5-0.5b");
  const StepMemory small = memory_at(config, 16 << 10, 0);
  for (const std::int64_t context : {256 << 10, 4 << 20}) {
    const StepMemory large = memory_at(config, context, 0);
    EXPECT_EQ(large.workspace, small.workspace);
    EXPECT_EQ(large.kv_pages, small.kv_pages / (16 << 10) * context);
  }
}

TEST(StepMemoryTest, AWindowBoundsTheGradientPages) {
  const ModelConfig config = find_preset("qwen2.5-0.5b");
  EXPECT_EQ(memory_at(config, 64 << 10, 1024).kv_gradient_pages,
            memory_at(config, 1 << 20, 1024).kv_gradient_pages);
  EXPECT_LT(memory_at(config, 64 << 10, 1024).kv_gradient_pages,
            memory_at(config, 64 << 10, 0).kv_gradient_pages);
}

TEST(StepMemoryTest, KeepingChunksCostsWhatTheyKeep) {
  const ModelConfig config = find_preset("tiny-llama");
  const std::int64_t one = memory_at(config, 8192, 0, 1).workspace,
                     two = memory_at(config, 8192, 0, 2).workspace,
                     three = memory_at(config, 8192, 0, 3).workspace;
  EXPECT_LT(one, two);
  EXPECT_NEAR(static_cast<double>(three - two), static_cast<double>(two - one),
              0.05 * static_cast<double>(two - one));
}

// Arenas and pools have the planned bytes, and nothing is allocated during a run.
TEST(StepMemoryTest, ARunTakesExactlyWhatWasPlanned) {
  const auto device = make_cpu_device();
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const RandomCase c = random_case(seed);
    const auto weights = random_weights(*device, c.config, seed);
    ParameterSet gradients(*device, c.config, DType::kF32, "gradients");
    const std::int64_t before = device->allocated_bytes();
    const NumericsRecord numerics = choose_numerics(*device, c.config, c.chunk, c.page);
    StepRunner runner = planned_runner(c.config, *weights, gradients, numerics,
                                       {static_cast<std::int64_t>(c.tokens.size()), c.keep_chunks});
    const std::int64_t planned = device->allocated_bytes();
    EXPECT_EQ(planned - before, runner.memory().total());
    runner.run({c.tokens, c.targets, c.document_starts}, 1.0);
    EXPECT_EQ(device->allocated_bytes(), planned);
    if (c.document_starts.size() == 1) {
      EXPECT_EQ(runner.store().kv_pool().peak(), runner.store().kv_pool().capacity());
      EXPECT_EQ(runner.store().gradient_pool().peak(), runner.store().gradient_pool().capacity());
    }
  }
}

// At long context the peak of pages is that of the schedule, page by page: 256K tokens without a
// model.
TEST(StepMemoryTest, LongSchedulesBalance) {
  const SequenceLayout layout{(256 << 10) + 17, 4096, 128, {0, 1000, 200000}};
  const StepSchedule schedule = make_step_schedule(layout, {{0, 512}, 2});
  EXPECT_EQ(schedule.peak_kv_pages, 2 * layout.pages());
  EXPECT_GT(schedule.peak_gradient_pages, 0);
}

}  // namespace
}  // namespace longstride
