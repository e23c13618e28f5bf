// Runs that train a tied embedding: new ones sum the gradient of the head apart, and older ones go
// on as they began.
#include <fmt/format.h>

#include "base/checksum.h"
#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

const std::string kTied = "--model.preset=tiny-qwen2";
const std::string kKey = "\"tied_apart\"";

bool is_apart(const RunDirectory& run, const std::string& step) {
  return run.read("out/" + step + "/state/state.json").find(kKey) != std::string::npos;
}

// The first step of a run, with a record from before.
void begin_as_before(const RunDirectory& run) {
  ASSERT_TRUE(ended(run.train({kTied, "--training.steps=1"}), 0));
  std::string state = run.read("out/step-1/state/state.json");
  ASSERT_NE(state.find(kKey), std::string::npos);
  state.replace(state.find(kKey), kKey.size(), "\"before_that\"");
  state.resize(state.size() - 17);
  state += fmt::format("{:016x}\n", checksum_of_text(state));
  run.files().write_text("out/step-1/state/state.json", state);
}

std::string weights_of(const RunDirectory& run) { return run.read("out/step-6/model.safetensors"); }

TEST(Tied, OlderRunsGoOnAsTheyBegan) {
  const RunDirectory newer, older, stopped;
  ASSERT_TRUE(ended(newer.train({kTied}), 0));
  EXPECT_TRUE(is_apart(newer, "step-6"));
  begin_as_before(older);
  const ProgramResult resumed = older.train({kTied, "--resume"});
  ASSERT_TRUE(ended(resumed, 0, {"resuming after step 1"}));
  EXPECT_EQ(resumed.err.find("arithmetic differs"), std::string::npos) << resumed.err;
  EXPECT_FALSE(is_apart(older, "step-6"));
  begin_as_before(stopped);
  ASSERT_TRUE(ended(stopped.train({kTied, "--resume", "--training.steps=3"}), 0));
  ASSERT_TRUE(ended(stopped.train({kTied, "--resume"}), 0, {"resuming after step 3"}));
  EXPECT_TRUE(same_files(older.contents("out/step-6"), stopped.contents("out/step-6")));
  EXPECT_NE(weights_of(older), weights_of(newer)) << "the order of additions has no effect";
  // The same gradients but for rounding, and one tensor less.
  const auto steps = [](const RunDirectory& run) {
    std::vector<Json> lines;
    for (const Json& line : run.metrics())
      if (line.contains("gradient_norm")) lines.push_back(line);
    return lines;
  };
  const std::vector<Json> before = steps(older), now = steps(newer);
  ASSERT_EQ(before.size(), 6u);
  ASSERT_EQ(now.size(), 6u);
  for (std::size_t i = 0; i < now.size(); ++i)
    for (const char* key : {"loss", "gradient_norm"})
      EXPECT_NEAR(now[i][key].get<double>(), before[i][key].get<double>(),
                  1e-4 * now[i][key].get<double>())
          << key << " of step " << i + 1;
  EXPECT_EQ(now.back()["bytes_gradients"].get<std::int64_t>() -
                before.back()["bytes_gradients"].get<std::int64_t>(),
            320 * 64 * 4);
}

TEST(Tied, NewRunsResumeToTheSameBytes) {
  const RunDirectory whole, stopped;
  const std::string batch = "--training.batch=2";
  ASSERT_TRUE(ended(whole.train({kTied, batch}), 0));
  ASSERT_TRUE(ended(stopped.train({kTied, batch, "--training.steps=3"}), 0));
  ASSERT_TRUE(ended(stopped.train({kTied, batch, "--resume"}), 0, {"resuming after step 3"}));
  EXPECT_TRUE(is_apart(stopped, "step-3"));
  EXPECT_TRUE(same_files(whole.contents("out/step-6"), stopped.contents("out/step-6")));
}

TEST(Tied, FrozenOrUntiedRecordsStayAsTheyWere) {
  const RunDirectory frozen, untied;
  ASSERT_TRUE(
      ended(frozen.train({kTied, "--training.steps=1", R"(--model.freeze=["*embed*"])"}), 0));
  EXPECT_FALSE(is_apart(frozen, "step-1"));
  ASSERT_TRUE(ended(untied.train({"--training.steps=1"}), 0));
  EXPECT_FALSE(is_apart(untied, "step-1"));
}

}  // namespace
}  // namespace longstride
