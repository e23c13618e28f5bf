// longstride demo, cut to two steps: what it names is there, and what it suggests works.
#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

TEST(Demo, LeavesAModelAndARunToGoOnWith) {
  const RunDirectory run;
  const ProgramResult result =
      run.run({"demo", "--steps", "2", "--skip-contexts", "--out", "demo"});
  ASSERT_TRUE(ended(result, 0));
  EXPECT_TRUE(says(result.out, {"Hugging Face directory:  demo/run/step-2\n",
                                "longstride inspect demo/run/step-2\n",
                                "longstride train demo/demo.toml --resume --training.steps=22\n"}));
  EXPECT_EQ(run.metrics("demo/run/metrics.jsonl").size(), 2u);

  const ProgramResult inspected = run.run({"inspect", "demo/run/step-2", "--json"});
  ASSERT_TRUE(ended(inspected, 0));
  EXPECT_EQ(Json::parse(inspected.out)["step"], 2);
  EXPECT_TRUE(ended(run.run({"train", "demo/demo.toml", "--resume", "--training.steps=3"}), 0,
                    {"resuming after step 2", "saved demo/run/step-3"}));
}

TEST(Demo, DoesNotWriteOverAnEarlierOne) {
  const RunDirectory run;
  run.files().write_text("demo/run/mine", "x");
  EXPECT_TRUE(refused(run.run({"demo", "--steps", "1", "--out", "demo"}),
                      {"demo/run exists already", "--out"}));
  EXPECT_EQ(run.names("demo"), (std::set<std::string>{"run"}));
}

}  // namespace
}  // namespace longstride
