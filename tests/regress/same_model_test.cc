// A resumed run compares what the model is, not how its path is spelled; and tells what has
// changed.
#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

class SameModel : public ::testing::Test {
 protected:
  void SetUp() override {
    run_.write_model("model", find_preset("tiny-llama"));
    ASSERT_TRUE(ended(train("model", {"--training.steps=3"}), 0));
  }
  ProgramResult train(const std::string& model, std::vector<std::string> more) const {
    more.insert(more.end(), {"--model.preset=", "--model.path=" + model});
    return run_.train(more);
  }
  const RunDirectory run_;
};

TEST_F(SameModel, UnderAnotherPath) {
  fs::create_directory_symlink("model", run_.path("link"));
  EXPECT_TRUE(ended(train("link", {"--resume", "--dry-run"}), 0));
  EXPECT_TRUE(ended(train(run_.path("model").string(), {"--resume", "--dry-run"}), 0));
  fs::rename(run_.path("model"), run_.path("moved"));
  EXPECT_TRUE(ended(train("moved", {"--resume"}), 0, {"resuming after step 3", "step 6/6"}));
}

TEST_F(SameModel, IsNotOneWithAnotherTheta) {
  Json config = Json::parse(run_.read("model/config.json"));
  config["rope_theta"] = 123456.0;
  run_.files().write_text("model/config.json", config.dump());
  EXPECT_TRUE(refused(train("model", {"--resume"}), {"rope_theta is 123456.0", "out/step-3"}));
}

TEST_F(SameModel, ChangesOfTheCourseAreTold) {
  EXPECT_TRUE(ended(
      train("model", {"--resume", "--optimizer.learning_rate=5e-4", "--training.batch=2",
                      "--schedule.kind=linear"}),
      0,
      {"changed since out/step-3: optimizer.learning_rate from 0.001 to 0.0005",
       "schedule.kind from \"constant\" to \"linear\"", "training.batch from 1 to 2", "step 6/6"}));
}

}  // namespace
}  // namespace longstride
