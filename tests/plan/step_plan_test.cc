// The plan of a step can be written, read back and compared, and a run with the plan that was read
// gives the same result as with the original.
#include "plan/step_plan.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "model/presets.h"
#include "plan/step_plan_json.h"

namespace longstride {
namespace {

constexpr std::int64_t kTokens = 700;

NumericsRecord record() {
  NumericsRecord r;
  r.chunk_tokens = 128;
  r.page_tokens = 32;
  r.head_block_rows = 64;
  return r;
}

StepPlan plan(const StepOptions& options) {
  const auto device = make_cpu_device();
  const ModelConfig config = find_preset("tiny-qwen3");
  const std::vector<ParameterSpec> parameters = parameter_specs(config, DType::kF32);
  return plan_step(*device, config, parameters, record(), options);
}

StepOptions some_options() {
  const ModelConfig config = find_preset("tiny-qwen3");
  StepOptions options{.max_tokens = kTokens, .keep_chunks = 2, .packed = true};
  for (unsigned i = 0; i < 3 * static_cast<unsigned>(config.layers); ++i)
    options.across_episodes.push_back(Retention::of_bits(7 * i % 64));
  return options;
}

TEST(StepPlan, IsTheSameEveryTime) {
  EXPECT_EQ(plan(some_options()), plan(some_options()));
  StepOptions other = some_options();
  other.across_episodes[1] = other.across_episodes[1] | Retention{Retained::kUp};
  EXPECT_NE(plan(some_options()), plan(other));
}

TEST(StepPlan, SurvivesAFile) {
  for (const bool tiers : {false, true}) {
    StepOptions options = some_options();
    if (tiers) {
      options.pages.device = 800 << 10;
      options.pages.disk = PageBudget::kAll;
      options.pages.host = 1 << 16;
      options.pages.disk_directory = "/some/where";
    }
    const StepPlan made = plan(options);
    const Json json = parse_json(dump_json(to_json(made)), "a test");
    EXPECT_EQ(step_plan_from_json(json, "a test"), made);
  }
}

TEST(StepPlan, ADamagedFileIsRefused) {
  const Json good = parse_json(dump_json(to_json(plan(some_options()))), "a test");
  const auto refused = [&](const auto& damage, const std::string& why) {
    Json json = good;
    damage(json);
    try {
      step_plan_from_json(json, "plan.json");
      ADD_FAILURE() << why;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("plan.json"), std::string::npos);
      EXPECT_NE(std::string(e.what()).find(why), std::string::npos) << e.what();
    }
  };
  refused([](Json& j) { j.erase("memory"); }, "memory");
  refused([](Json& j) { j["max_tokens"] = "many"; }, "number");
  refused([](Json& j) { j["schedule"]["within_episode"][0] = "inptu"; }, "inptu");
  refused([](Json& j) { j["episodes"][0]["tensors"][0]["offset"] = 1; }, "aligned");
}

// The placement of pages changes nothing else.
TEST(StepPlan, PagesAreSpreadAfterwards) {
  const auto device = make_cpu_device();
  const ModelConfig config = find_preset("tiny-qwen3");
  const std::vector<ParameterSpec> parameters = parameter_specs(config, DType::kF32);
  const StepPlanner planner(*device, config, parameters, record(), some_options());
  const StepPlan resident = planner.plan({});
  StepPlan streamed = planner.plan({.device = planner.least_page_bytes()});
  EXPECT_LT(streamed.memory.kv_pages, resident.memory.kv_pages);
  EXPECT_GT(streamed.memory.host_pages, 0);
  streamed.pages = resident.pages;
  streamed.memory = resident.memory;
  EXPECT_EQ(streamed, resident);
}

}  // namespace
}  // namespace longstride
