// The settings that plans propose for runs that do not fit.
#include "train/remedies.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "device/why_no_cuda.h"
#include "plan/machines.h"
#include "train/outlook.h"
#include "train/run_memory.h"

namespace longstride {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

constexpr const char* kRun = R"([model]
preset = "{}"
dtype = "{}"
[data]
path = "tokens.bin"
[training]
context = "{}"
steps = 10
[checkpoint]
directory = "out"
)";

struct Case {
  const char *preset, *dtype, *context;
  std::unique_ptr<Device> device;
  MachineRates rates;
  std::vector<std::string> settings = {};  // of the user

  TrainConfig config(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = settings;
    all.insert(all.end(), more.begin(), more.end());
    return parse_train_config(fmt::format(kRun, preset, dtype, context), "run.toml", "base", all);
  }

  Remedies remedies() const {
    return find_remedies(config(), config().training.chunk.value(), *device, rates);
  }
};

Case on_h200(const char* context, std::vector<std::string> settings) {
  const MachineRates& rates = find_machine("h200");
  return {"qwen2.5-7b",
          "bf16",
          context,
          make_shapes_device(DeviceKind::kCuda, {rates.name, rates.device_bytes, rates.host_bytes}),
          rates,
          std::move(settings)};
}
Case on_small_cpu(const char* context, const char* gpu, const char* host) {
  const MachineRates rates = cpu_machine(2);
  return {"tiny-llama",
          "f32",
          context,
          make_shapes_device(DeviceKind::kCpu, {rates.name, 8 * kGiB, 8 * kGiB}),
          rates,
          {fmt::format("memory.gpu={}", gpu), fmt::format("memory.host={}", host),
           "training.chunk=1024"}};
}

bool fits(const Case& c, const TrainConfig& config) {
  RunPlan plan = plan_shapes(config, *c.device);
  try {
    plan_memory(plan, *c.device, c.rates, Effort::kQuick);
    check_fits(plan);
  } catch (const Error&) {
    return false;
  }
  return true;
}

// What a user would write for a setting: "section.key=value". That of a disk has its size in words.
std::vector<std::string> overrides_of(const std::vector<std::string>& settings) {
  std::vector<std::string> overrides;
  for (const std::string& setting : settings) {
    const std::size_t equals = setting.find(" = "), with = setting.find(", with ");
    overrides.push_back(setting.substr(0, equals) + "=" +
                        setting.substr(equals + 3, with - equals - 3));
    if (with == std::string::npos) continue;
    overrides.push_back(
        "memory.disk=" + setting.substr(with + 7, setting.find(" GiB free") - with - 7) + "GiB");
  }
  return overrides;
}

bool has_a_disk(const std::vector<std::string>& settings) {
  return std::ranges::any_of(
      settings, [](const std::string& setting) { return setting.starts_with("memory.disk_path"); });
}

// What is proposed is enough as written, and nothing of it can be left out. Where a disk is needed,
// it was all that other settings could not do.
void expect_enough_and_needed(const Case& c) {
  SCOPED_TRACE(fmt::format("{} {}", c.preset, c.context));
  ASSERT_FALSE(fits(c, c.config()));
  const Remedies found = c.remedies();
  ASSERT_FALSE(found.settings.empty());
  SCOPED_TRACE(fmt::format("{}", fmt::join(found.settings, "; ")));
  EXPECT_TRUE(fits(c, found.config));
  EXPECT_TRUE(fits(c, c.config(overrides_of(found.settings))));
  for (std::size_t without = 0; without < found.settings.size(); ++without) {
    if (has_a_disk(found.settings) && without + 1 < found.settings.size()) continue;
    std::vector<std::string> fewer = found.settings;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(without));
    EXPECT_FALSE(fits(c, c.config(overrides_of(fewer)))) << "without " << found.settings[without];
  }
}

TEST(Remedies, AreEnoughAndNeeded) {
  expect_enough_and_needed(on_small_cpu("64K", "1044MiB", "5MiB"));
  expect_enough_and_needed(on_small_cpu("256K", "1044MiB", "60MiB"));
  expect_enough_and_needed(on_small_cpu("256K", "1044MiB", "0"));
}

// Also with the best plan, which may use host memory for activations.
TEST(Remedies, MakeAPlanThatFits) {
  const Case c = on_small_cpu("64K", "1044MiB", "5MiB");
  const Outlook outlook = make_outlook(c.config(), *c.device, c.rates);
  EXPECT_FALSE(outlook.fits());
  ASSERT_NE(outlook.changed, nullptr);
  EXPECT_TRUE(outlook.changed->fits());
  EXPECT_GT(outlook.changed->seconds(), 0);
}

TEST(Remedies, AreNotWhatTheUserChose) {
  Case c = on_small_cpu("256K", "1044MiB", "60MiB");
  c.settings.back() = "training.chunk=512";
  c.settings.emplace_back("numerics.kv_dtype=fp8");
  const Remedies found = c.remedies();
  ASSERT_FALSE(found.settings.empty());
  for (const std::string& setting : found.settings) {
    EXPECT_FALSE(setting.starts_with("numerics.kv_dtype")) << setting;
    EXPECT_FALSE(setting.starts_with("training.chunk")) << setting;
  }
  EXPECT_EQ(found.config.numerics.kv_dtype, "fp8");
}

TEST(Remedies, ThereMayBeNone) {
  const Case c = on_small_cpu("64K", "1024MiB", "2MiB");
  EXPECT_TRUE(c.remedies().settings.empty());
}

class RemediesOnH200 : public testing::Test {
 protected:
  void SetUp() override {
    if (why_no_cuda() == "this build has no CUDA") GTEST_SKIP() << why_no_cuda();
  }
};

// With 125 GiB of host memory and 52 GiB of disk.
TEST_F(RemediesOnH200, SlowMillionsOfTokens) {
  for (const char* context : {"2M", "4M"})
    expect_enough_and_needed(
        on_h200(context, {"memory.disk=52GiB", "memory.disk_path=.", "training.chunk=4096"}));
}

}  // namespace
}  // namespace longstride
