// Weights that are loaded need no initializer_range: 0, null or nothing there is no mistake.
#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

TEST(InitializerRange, MattersForRandomWeightsAlone) {
  const RunDirectory run;
  run.write_model("model", changed_preset("tiny-llama"));
  run.write_tokens("few.bin", 65);
  Json config = Json::parse(run.read("model/config.json"));
  const auto gradients = [&] {
    run.files().write_text("model/config.json", config.dump());
    return run.run({"gradients", "--model", "model", "--tokens", "few.bin", "--chunk", "64",
                    "--page", "16", "--device", "cpu"});
  };
  for (const Json& value : {Json(0), Json(0.0), Json(nullptr)}) {
    config["initializer_range"] = value;
    EXPECT_TRUE(ended(gradients(), 0)) << value;
  }
  config.erase("initializer_range");
  EXPECT_TRUE(ended(gradients(), 0));
  config["initializer_range"] = -1;
  EXPECT_TRUE(refused(gradients(), {"initializer_range is -1"}));
  config["initializer_range"] = "small";
  EXPECT_EQ(gradients().status, 2);
}

TEST(InitializerRange, RandomWeightsOfZeroAreRefused) {
  const std::unique_ptr<Device> device = make_cpu_device();
  const ModelConfig config = changed_preset("tiny-llama", {{"initializer_range", 0}});
  ParameterSet weights(*device, config, DType::kF32, "weights");
  EXPECT_TRUE(says(error_of([&] { initialize_random(weights, config, 1); }),
                   {"initializer_range is 0", "0.02"}));
}

}  // namespace
}  // namespace longstride
