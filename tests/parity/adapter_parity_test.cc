// Loss and gradients of adapters, and of modules trained beside them, as PEFT computes them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/files.h"
#include "base/json.h"
#include "model/adapter_directory.h"
#include "model/file_tensors.h"
#include "model/fold_adapters.h"
#include "tests/where.h"
#include "train/engine.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

const fs::path kParity = source_directory() / "tests" / "parity";

std::vector<std::string> adapter_names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kParity / "adapters"))
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

double error_of(const std::vector<float>& ours, const std::vector<float>& right) {
  double difference = 0, norm = 0;
  for (std::size_t e = 0; e < right.size(); ++e) {
    difference += std::pow(static_cast<double>(ours[e]) - static_cast<double>(right[e]), 2);
    norm += std::pow(static_cast<double>(right[e]), 2);
  }
  return std::sqrt(difference / norm);
}

class AdapterParity : public testing::TestWithParam<std::string> {};

TEST_P(AdapterParity, LossAndEveryGradient) {
  const fs::path directory = kParity / "adapters" / GetParam();
  const Json expected = read_json(directory / "expected.json");
  const fs::path base = kParity / "fixtures" / expected.at("base").get<std::string>();
  const ModelDirectory model = ModelDirectory::open(base);
  const AdapterDirectory adapter = AdapterDirectory::open(directory, model.config());
  const SafetensorsReader right = SafetensorsReader::open_file(directory / "expected.safetensors");
  std::vector<ParameterSpec> specs = model.specs();
  const auto device = make_cpu_device();
  add_adapters(specs, adapter.config(), model.config(), DType::kF32);

  const MappedFile file(base / "tokens.bin");
  std::vector<std::int32_t> tokens(file.bytes().size() / 4);
  std::memcpy(tokens.data(), file.bytes().data(), tokens.size() * 4);
  std::vector<std::int32_t> targets(tokens.begin() + 1, tokens.end());
  targets.push_back(-100);
  const std::vector<std::int64_t> starts = {0};
  const double predicted = expected.at("predicted"), loss = expected.at("loss");
  for (const auto& [chunk, page] :
       {std::pair<std::int64_t, std::int64_t>{1024, 128}, {64, 32}, {48, 16}}) {
    SCOPED_TRACE(fmt::format("chunk {} page {}", chunk, page));
    Engine engine(*device, model.config(), specs);
    engine.load(model);
    engine.load_adapters(adapter);
    const NumericsRecord numerics = choose_numerics(*device, model.config(), chunk, page);
    engine.prepare_step(
        numerics, engine.planner(numerics, {.max_tokens = static_cast<std::int64_t>(tokens.size())})
                      .plan({}));
    const SequenceResult result = engine.backward({tokens, targets, starts}, 1.0 / predicted);
    EXPECT_NEAR(result.loss_sum / predicted, loss, 1e-5 * loss);
    const TensorsToWrite out = tensors_to_write(engine.gradients());
    EXPECT_EQ(out.tensors.size(), right.names().size());
    for (std::size_t i = 0; i < out.tensors.size(); ++i) {
      std::vector<float> ours;
      out.read(static_cast<std::int64_t>(i), [&](std::span<const std::byte> bytes) {
        const auto* values = reinterpret_cast<const float*>(bytes.data());
        ours.insert(ours.end(), values, values + bytes.size() / sizeof(float));
      });
      ASSERT_TRUE(right.contains(out.tensors[i].name)) << out.tensors[i].name;
      EXPECT_LT(error_of(ours, right.read_floats(out.tensors[i].name)), 1e-4)
          << out.tensors[i].name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Adapters, AdapterParity, testing::ValuesIn(adapter_names()),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace longstride
