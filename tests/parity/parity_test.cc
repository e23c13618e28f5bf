// Invariant 5: loss and every gradient as Hugging Face transformers computes them, for every family
// and RoPE variant, whatever the chunk.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/files.h"
#include "base/json.h"
#include "model/model_directory.h"
#include "model/rope_choice.h"
#include "tests/train/planned_runner.h"
#include "tests/where.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

const fs::path kFixtures = source_directory() / "tests" / "parity" / "fixtures";

std::vector<std::string> fixture_names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kFixtures))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

struct Fixture {
  ModelDirectory model;
  SafetensorsReader gradients;
  std::vector<std::int32_t> tokens, targets;
  std::vector<std::int64_t> document_starts;
  std::int64_t first_position = 0;
  Json expected;

  explicit Fixture(const std::string& name)
      : model(ModelDirectory::open(kFixtures / name)),
        gradients(SafetensorsReader::open_file(kFixtures / name / "expected.safetensors")) {
    expected = read_json(kFixtures / name / "expected.json");
    const MappedFile file(kFixtures / name / "tokens.bin");
    tokens.resize(file.bytes().size() / 4);
    std::memcpy(tokens.data(), file.bytes().data(), tokens.size() * 4);
    targets.assign(tokens.begin() + 1, tokens.end());
    targets.push_back(-100);
    std::int64_t start = 0;
    for (const std::int64_t length : expected.at("documents")) {
      document_starts.push_back(start);
      targets[static_cast<std::size_t>((start += length) - 1)] = -100;
    }
    EXPECT_EQ(start, static_cast<std::int64_t>(tokens.size()));
    first_position = expected.at("first_position");
  }
};

// Loss and gradients of the fixture's weights under `config` are those expected.
void expect_parity(const Fixture& f, const ModelConfig& config) {
  const auto device = make_cpu_device();
  ParameterSet weights(*device, f.model.specs(), "weights"),
      gradients(*device, config, DType::kF32, "gradients");
  f.model.load(weights);
  const double predicted = f.expected.at("predicted");
  for (const auto& [chunk, page] :
       {std::pair<std::int64_t, std::int64_t>{1024, 128}, {64, 32}, {48, 16}}) {
    SCOPED_TRACE(fmt::format("chunk {} page {}", chunk, page));
    gradients.zero();
    StepRunner runner =
        planned_runner(config, weights, gradients, choose_numerics(*device, config, chunk, page),
                       {static_cast<std::int64_t>(f.tokens.size()), 1});
    runner.record_losses();
    const SequenceResult r =
        runner.run({f.tokens, f.targets, f.document_starts, f.first_position}, 1.0 / predicted);
    EXPECT_EQ(static_cast<double>(r.targets), predicted);
    const double loss = f.expected.at("loss");
    EXPECT_NEAR(r.loss_sum / predicted, loss, 1e-5 * loss);
    for (const Json& token : f.expected.at("token_losses")) {
      const double right = token.at("loss");
      EXPECT_NEAR(static_cast<double>(runner.losses()[token.at("index")]), right,
                  1e-4 * std::max(1.0, right))
          << "token " << token.at("index");
    }
    // Under the names of the files, as they are written.
    const TensorsToWrite out = tensors_to_write(gradients);
    ASSERT_EQ(f.gradients.names().size(), out.tensors.size());
    for (std::size_t i = 0; i < out.tensors.size(); ++i) {
      const std::vector<float> right = f.gradients.read_floats(out.tensors[i].name);
      std::vector<float> ours;
      out.read(static_cast<std::int64_t>(i), [&](std::span<const std::byte> bytes) {
        const auto* values = reinterpret_cast<const float*>(bytes.data());
        ours.insert(ours.end(), values, values + bytes.size() / sizeof(float));
      });
      ASSERT_EQ(right.size(), ours.size());
      double difference = 0, norm = 0;
      for (std::size_t e = 0; e < right.size(); ++e) {
        difference += std::pow(static_cast<double>(ours[e]) - static_cast<double>(right[e]), 2);
        norm += std::pow(static_cast<double>(right[e]), 2);
      }
      EXPECT_LT(std::sqrt(difference), 1e-4 * std::sqrt(norm) + 1e-9) << out.tensors[i].name;
    }
  }
}

class Parity : public testing::TestWithParam<std::string> {};

TEST_P(Parity, LossAndEveryGradient) {
  const Fixture f(GetParam());
  expect_parity(f, f.model.config());
}

// The model as it was before its context was extended, and the settings that extend it.
TEST(RopeSettings, GiveWhatTransformersComputes) {
  const std::pair<const char*, RopeChoice> cases[] = {
      {"rope-linear", {.type = "linear", .factor = 2.5}},
      {"rope-llama3", {.type = "llama3", .factor = 8, .original_positions = 64}},
      {"rope-llama3-old", {.type = "llama3", .theta = 500, .factor = 8, .original_positions = 64}},
      {"rope-yarn", {.type = "yarn", .factor = 4, .original_positions = 64}},
      {"gemma3-old-config", {.type = "linear", .theta = 1e5, .factor = 8}},
      {"qwen2-old-yarn", {.type = "yarn", .theta = 10000, .factor = 4, .original_positions = 64}}};
  for (const auto& [name, choice] : cases) {
    SCOPED_TRACE(name);
    const Fixture f(name);
    Json json = f.model.config().raw;
    for (const char* key : {"rope_scaling", "rope_parameters", "rope_theta"}) json.erase(key);
    ModelConfig config = parse_config(json, name);
    apply_rope(choice, rope_keys(), std::ssize(f.tokens), name, config);
    expect_parity(f, config);
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Parity, testing::ValuesIn(fixture_names()),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace longstride
