// A step on a quantized base: loss and gradients of what is trained, memory as planned.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/files.h"
#include "base/json.h"
#include "model/model_directory.h"
#include "model/quantize_specs.h"
#include "ops/quantize.h"
#include "tests/train/planned_runner.h"
#include "tests/where.h"

namespace longstride {
namespace {

class QuantizedStep : public testing::TestWithParam<std::string> {
 protected:
  std::filesystem::path directory_ =
      source_directory() / "tests" / "model" / "quantized" / GetParam();
  ModelDirectory model_ = ModelDirectory::open(directory_);
  std::unique_ptr<Device> device_ = make_cpu_device();

  struct Result {
    double loss = 0;
    std::map<std::string, std::vector<float>> gradients;
  };
  Result run(const ParameterSet& weights, std::int64_t chunk) {
    const MappedFile file(directory_ / "tokens.bin");
    std::vector<std::int32_t> tokens(file.bytes().size() / 4);
    std::memcpy(tokens.data(), file.bytes().data(), tokens.size() * 4);
    std::vector<std::int32_t> targets(tokens.begin() + 1, tokens.end());
    targets.push_back(-100);
    const double predicted = static_cast<double>(tokens.size() - 1);
    ParameterSet gradients = ParameterSet::gradients(*device_, weights.specs());
    gradients.zero();
    NumericsChoice choice;
    choice.quantize = quantization_of(weights.specs());
    const std::int64_t before = device_->allocated_bytes();
    StepRunner runner =
        planned_runner(model_.config(), weights, gradients,
                       choose_numerics(*device_, model_.config(), chunk, 16, choice),
                       {static_cast<std::int64_t>(tokens.size()), 1});
    const std::int64_t planned = device_->allocated_bytes();
    EXPECT_EQ(planned - before, runner.memory().total());
    const std::vector<std::int64_t> starts = {0};
    Result result;
    result.loss = runner.run({tokens, targets, starts}, 1.0 / predicted).loss_sum / predicted;
    EXPECT_EQ(device_->allocated_bytes(), planned);
    for (std::int64_t i = 0; i < gradients.size(); ++i)
      if (const View view = gradients.view(i); view.present())
        result.gradients[gradients.specs()[static_cast<std::size_t>(i)].name].assign(
            view.as<float>(), view.as<float>() + view.elements());
    return result;
  }
};

TEST_P(QuantizedStep, LossAndGradientsAreThoseOfTheWidenedModel) {
  ParameterSet weights(*device_, model_.specs(), "weights");
  EXPECT_EQ(weights.bytes(), ParameterSet::bytes_needed(model_.specs()));
  model_.load(weights);
  const double loss = read_json(directory_ / "expected.json").at("loss");
  const SafetensorsReader expected =
      SafetensorsReader::open_file(directory_ / "expected.safetensors");
  for (const std::int64_t chunk : {256, 48}) {
    SCOPED_TRACE(chunk);
    const Result result = run(weights, chunk);
    EXPECT_NEAR(result.loss, loss, 1e-5 * loss);
    EXPECT_EQ(result.gradients.size(), model_.specs().size() - 14);
    for (const auto& [name, ours] : result.gradients) {
      const std::vector<float> right = expected.read_floats(name + ".gradient");
      ASSERT_EQ(ours.size(), right.size());
      double difference = 0, norm = 0;
      for (std::size_t i = 0; i < right.size(); ++i) {
        difference += std::pow(static_cast<double>(ours[i]) - static_cast<double>(right[i]), 2);
        norm += std::pow(static_cast<double>(right[i]), 2);
      }
      EXPECT_LT(std::sqrt(difference), 1e-4 * std::sqrt(norm) + 1e-9) << name;
    }
  }
}

// The products are the same ones, so the bits are those of a model with the values as plain
// weights.
TEST_P(QuantizedStep, HasTheBitsOfPlainWeights) {
  ParameterSet weights(*device_, model_.specs(), "weights");
  model_.load(weights);
  std::vector<ParameterSpec> specs = with_dtype(model_.specs(), DType::kF32);
  ParameterSet plain(*device_, specs, "weights");
  for (std::int64_t i = 0; i < plain.size(); ++i) {
    const View from = weights.view(i), to = plain.view(i);
    if (is_block_format(from.dtype()))
      ops::widen_weight(device_->stream(), {.q_OI = from, .y_OW = to});
    else
      std::memcpy(to.data(), from.data(), static_cast<std::size_t>(to.bytes()));
  }
  const Result a = run(weights, 64), b = run(plain, 64);
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_EQ(a.gradients, b.gradients);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, QuantizedStep, testing::Values("nf4", "nf4-wide", "int8"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace longstride
