// Families whose files hold several projections in one tensor.
#include "model/file_tensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "model/model_directory.h"
#include "model/presets.h"
#include "model/trainable.h"
#include "tests/model/fixtures.h"

namespace longstride {
namespace {

using testing::expect_error;
using testing::TemporaryDirectory;

const ModelConfig& phi() {
  static const ModelConfig config = find_preset("tiny-phi3");
  return config;
}

TEST(FileTensors, OneForEachParameterByDefault) {
  const std::vector<ParameterSpec> specs = parameter_specs(find_preset("tiny-qwen3"));
  const std::vector<FileTensor> tensors = file_tensors(specs);
  ASSERT_EQ(tensors.size(), specs.size());
  for (std::size_t i = 0; i < specs.size(); ++i) {
    EXPECT_EQ(tensors[i].name, specs[i].name);
    EXPECT_EQ(tensors[i].shape, specs[i].shape);
  }
}

TEST(FileTensors, FusedNamesOfPhi) {
  const std::vector<ParameterSpec> specs = parameter_specs(phi());
  std::set<std::string> unique;
  for (const ParameterSpec& spec : specs) unique.insert(spec.name);
  EXPECT_EQ(unique.size(), specs.size());  // the optimizer's state is named after them
  std::vector<std::string> names;
  for (const FileTensor& tensor : file_tensors(specs)) {
    names.push_back(tensor.name);
    if (tensor.name == "model.layers.1.self_attn.qkv_proj.weight") {
      EXPECT_EQ(tensor.shape, Shape({64 + 2 * 32, 64}));
      EXPECT_EQ(tensor.count, 3);
    }
    if (tensor.name == "model.layers.1.mlp.gate_up_proj.weight") {
      EXPECT_EQ(tensor.shape, Shape({2 * 160, 64}));
      EXPECT_EQ(tensor.count, 2);
    }
  }
  EXPECT_EQ(names.size(), 1u + 2 * 6 + 2);
  for (const char* gone : {"q_proj", "up_proj.weight", "gate_proj"})
    for (const std::string& name : names)
      EXPECT_TRUE(name.find(gone) == std::string::npos || name.find("gate_up") != std::string::npos)
          << name;
}

TEST(FileTensors, PartsMustMakeUpTheTensor) {
  std::vector<ParameterSpec> specs = parameter_specs(phi());
  const auto k =
      std::ranges::find(specs, "model.layers.0.self_attn.k_proj.weight", &ParameterSpec::name);
  specs.erase(k);
  EXPECT_THROW(file_tensors(specs), InternalError);
}

TEST(FileTensors, AModelWrittenAndReadAgainIsTheSame) {
  const TemporaryDirectory directory;
  const auto device = make_cpu_device();
  ParameterSet weights(*device, phi(), DType::kBF16, "weights");
  initialize_random(weights, phi(), 4);
  write_model_directory(directory.path(), phi(), weights);
  const ModelDirectory model = ModelDirectory::open(directory.path());
  EXPECT_TRUE(model.reader().contains("model.layers.0.self_attn.qkv_proj.weight"));
  EXPECT_FALSE(model.reader().contains("model.layers.0.self_attn.q_proj.weight"));
  ParameterSet again(*device, model.specs(), "weights");
  model.load(again);
  ASSERT_EQ(again.bytes(), weights.bytes());
  EXPECT_EQ(std::memcmp(again.data(), weights.data(), static_cast<std::size_t>(weights.bytes())),
            0);
  // k begins below q in the file's tensor.
  const std::vector<float> fused =
      model.reader().read_floats("model.layers.0.self_attn.qkv_proj.weight");
  ParameterSet wide(*device, phi(), DType::kF32, "weights");
  model.load(wide);
  EXPECT_EQ(wide.model().layers[0].k.as<float>()[5], fused[64 * 64 + 5]);
  EXPECT_EQ(wide.model().layers[0].v.as<float>()[5], fused[96 * 64 + 5]);
}

TEST(FileTensors, ABrokenValueIsNamedByItsPlaceInTheFile) {
  const TemporaryDirectory directory;
  const auto device = make_cpu_device();
  ParameterSet weights(*device, phi(), DType::kF32, "weights");
  initialize_random(weights, phi(), 4);
  const TensorsToWrite good = tensors_to_write(weights);
  testing::write_text(directory.path() / "config.json", phi().raw.dump());
  write_safetensors_model(
      directory.path(), good.tensors, [&](std::int64_t i, const ByteSink& sink) {
        std::vector<std::byte> all;
        good.read(i,
                  [&](std::span<const std::byte> b) { all.insert(all.end(), b.begin(), b.end()); });
        const float bad = std::numeric_limits<float>::quiet_NaN();
        if (good.tensors[static_cast<std::size_t>(i)].name ==
            "model.layers.1.mlp.gate_up_proj.weight")
          std::memcpy(all.data() + std::size_t{200 * 64 + 3} * sizeof(float), &bad, sizeof(bad));
        sink(all);
      });
  const ModelDirectory model = ModelDirectory::open(directory.path());
  ParameterSet set(*device, model.specs(), "weights");
  expect_error([&] { model.load(set); },
               {"model.layers.1.mlp.gate_up_proj.weight", "nan at index 12803"});
}

TEST(FileTensors, GlobsMatchTheNamesOfTheFiles) {
  std::vector<ParameterSpec> specs = parameter_specs(phi());
  choose_trainable(specs, {"*.0.self_attn.qkv_proj.weight"}, {}, "train", "freeze");
  for (const ParameterSpec& spec : specs)
    EXPECT_EQ(spec.trainable,
              spec.place.layer == 0 && (spec.name.find("q_proj") != spec.name.npos ||
                                        spec.name.find("k_proj") != spec.name.npos ||
                                        spec.name.find("v_proj") != spec.name.npos))
        << spec.name;
  expect_error([&] { choose_trainable(specs, {"*q_proj*"}, {}, "train", "freeze"); },
               {"train: no parameter of the model matches \"*q_proj*\"", "qkv_proj"});
}

}  // namespace
}  // namespace longstride
