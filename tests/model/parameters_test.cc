#include "model/parameters.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "base/thread_pool.h"
#include "model/presets.h"
#include "tests/model/fixtures.h"

namespace longstride {
namespace {

std::vector<std::byte> copy_of(const ParameterSet& set) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(set.bytes()));
  set.device().copy_to_host(bytes.data(), set.data(), set.bytes());
  return bytes;
}

std::set<std::string> names_of(const ModelConfig& config) {
  std::set<std::string> names;
  for (const ParameterSpec& spec : parameter_specs(config)) names.insert(spec.name);
  return names;
}

TEST(Parameters, NamesShapesAndDecay) {
  const ModelConfig config = find_preset("tiny-qwen3");
  std::map<std::string, Shape> shapes;
  for (const ParameterSpec& spec : parameter_specs(config)) {
    const bool plain = spec.name.find("norm") != std::string::npos || spec.name.ends_with("bias");
    EXPECT_EQ(spec.decay, !plain) << spec.name;
    EXPECT_TRUE(shapes.emplace(spec.name, spec.shape).second) << spec.name;
  }
  EXPECT_EQ(shapes.size(), 3u + 2u * 11u);
  EXPECT_EQ(shapes.at("model.embed_tokens.weight"), (Shape{320, 64}));
  EXPECT_EQ(shapes.at("model.layers.1.self_attn.q_proj.weight"), (Shape{128, 64}));
  EXPECT_EQ(shapes.at("model.layers.1.self_attn.k_proj.weight"), (Shape{64, 64}));
  EXPECT_EQ(shapes.at("model.layers.1.self_attn.o_proj.weight"), (Shape{64, 128}));
  EXPECT_EQ(shapes.at("model.layers.0.self_attn.q_norm.weight"), (Shape{32}));
  EXPECT_EQ(shapes.at("model.layers.1.self_attn.k_norm.weight"), (Shape{32}));
  EXPECT_EQ(shapes.at("model.layers.0.mlp.down_proj.weight"), (Shape{64, 160}));
  EXPECT_EQ(parameter_specs(config).front().name, "model.embed_tokens.weight");
  EXPECT_EQ(parameter_specs(config).back().name, "lm_head.weight");
}

TEST(Parameters, BiasesOfEachFamily) {
  const auto qwen2 = names_of(find_preset("tiny-qwen2"));
  EXPECT_TRUE(qwen2.contains("model.layers.0.self_attn.v_proj.bias"));
  EXPECT_FALSE(qwen2.contains("model.layers.0.self_attn.o_proj.bias"));
  EXPECT_FALSE(qwen2.contains("lm_head.weight"));  // tied
  const auto llama = names_of(
      parse_config(testing::config_json("llama", {{"attention_bias", true}, {"mlp_bias", true}}),
                   "config.json"));
  for (const char* name :
       {"self_attn.q_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"})
    EXPECT_TRUE(llama.contains(fmt::format("model.layers.3.{}.bias", name))) << name;
}

TEST(ParameterSet, PlacesEveryParameterAligned) {
  const auto device = make_cpu_device();
  const ModelConfig config = find_preset("tiny-qwen2");
  std::vector<ParameterSpec> specs = parameter_specs(config, DType::kBF16);
  specs[1].dtype = DType::kF32;
  const ParameterSet set(*device, specs, "weights");
  EXPECT_EQ(set.bytes(), ParameterSet::bytes_needed(specs));
  EXPECT_EQ(device->allocated_bytes(), set.bytes());
  const std::byte* end = set.data();
  for (std::int64_t i = 0; i < set.size(); ++i) {
    const View view = set.view(i);
    const auto* begin = static_cast<const std::byte*>(view.data());
    EXPECT_EQ((begin - set.data()) % 256, 0);
    EXPECT_GE(begin, end);
    end = begin + view.bytes();
    EXPECT_EQ(view.dtype(), i == 1 ? DType::kF32 : DType::kBF16);
    EXPECT_EQ(view.shape(), set.specs()[static_cast<std::size_t>(i)].shape);
  }
  EXPECT_LE(end, set.data() + set.bytes());
}

TEST(ParameterSet, GivesViewsByRole) {
  const auto device = make_cpu_device();
  const ModelConfig config = find_preset("tiny-qwen2");
  const ParameterSet set(*device, config, DType::kF32, "weights");
  const ModelParameters model = set.model();
  const auto named = [&](const std::string& name) {
    for (std::int64_t i = 0; i < set.size(); ++i)
      if (set.specs()[static_cast<std::size_t>(i)].name == name) return set.view(i).data();
    return static_cast<void*>(nullptr);
  };
  ASSERT_EQ(model.layers.size(), 2u);
  EXPECT_EQ(model.embedding.data(), named("model.embed_tokens.weight"));
  EXPECT_EQ(model.head.data(), model.embedding.data());
  EXPECT_EQ(model.final_norm.data(), named("model.norm.weight"));
  const LayerParameters& layer = model.layers[1];
  EXPECT_EQ(layer.input_norm.data(), named("model.layers.1.input_layernorm.weight"));
  EXPECT_EQ(layer.q.data(), named("model.layers.1.self_attn.q_proj.weight"));
  EXPECT_EQ(layer.k_bias.data(), named("model.layers.1.self_attn.k_proj.bias"));
  EXPECT_EQ(layer.v.data(), named("model.layers.1.self_attn.v_proj.weight"));
  EXPECT_EQ(layer.o.data(), named("model.layers.1.self_attn.o_proj.weight"));
  EXPECT_EQ(layer.post_norm.data(), named("model.layers.1.post_attention_layernorm.weight"));
  EXPECT_EQ(layer.gate.data(), named("model.layers.1.mlp.gate_proj.weight"));
  EXPECT_EQ(layer.up.data(), named("model.layers.1.mlp.up_proj.weight"));
  EXPECT_EQ(layer.down.data(), named("model.layers.1.mlp.down_proj.weight"));
  EXPECT_TRUE(layer.q_bias.present());
  EXPECT_FALSE(layer.o_bias.present());
  EXPECT_FALSE(layer.q_norm.present());
  EXPECT_FALSE(layer.gate_bias.present());
}

TEST(ParameterSet, HoldsTheTrainableAlone) {
  const auto device = make_cpu_device();
  for (const bool tied : {true, false}) {
    ModelConfig config = find_preset("tiny-qwen2");
    config.tied_embeddings = tied;
    std::vector<ParameterSpec> specs = parameter_specs(config, DType::kBF16), trained;
    for (std::size_t i = 0; i < specs.size(); ++i) {
      specs[i].trainable = i % 3 == 1;
      if (specs[i].trainable) trained.push_back(specs[i]);
    }
    const ParameterSet set = ParameterSet::gradients(*device, specs);
    EXPECT_EQ(set.size(), std::ssize(specs));
    EXPECT_EQ(set.bytes(), ParameterSet::bytes_needed(with_dtype(trained, DType::kF32)));
    EXPECT_EQ(set.bytes(), ParameterSet::gradient_bytes_needed(specs));
    EXPECT_EQ(device->allocated_bytes(), set.bytes());
    for (std::int64_t i = 0; i < set.size(); ++i) {
      ASSERT_EQ(set.view(i).present(), i % 3 == 1);
      if (i % 3 != 1) continue;
      EXPECT_EQ(set.view(i).dtype(), DType::kF32);
      EXPECT_EQ(set.view(i).shape(), specs[static_cast<std::size_t>(i)].shape);
    }
    // By role too; the gradient of a frozen head is not the embedding's.
    const ModelParameters model = set.model();
    EXPECT_FALSE(model.embedding.present());
    EXPECT_EQ(model.head.present(), specs.back().trainable && !tied);
    EXPECT_TRUE(model.layers[0].input_norm.present());
    EXPECT_FALSE(model.layers[0].q.present());
  }
  std::vector<ParameterSpec> specs = parameter_specs(find_preset("tiny-qwen2"));
  specs.front().trainable = true;
  specs.back().trainable = false;
  const ParameterSet set = ParameterSet::gradients(*device, specs);
  EXPECT_EQ(set.model().head.data(), set.model().embedding.data());
  EXPECT_NE(set.model().head.data(), nullptr);
}

TEST(ParameterSet, OfShapesAlone) {
  const ModelConfig config = find_preset("qwen2.5-32b");
  ParameterSet set(shapes_device(DeviceKind::kCpu), config, DType::kBF16, "weights");
  EXPECT_GE(set.bytes(), 2 * parameter_count(config));
  EXPECT_EQ(set.model().layers[63].down.data(), nullptr);
  EXPECT_TRUE(set.model().layers[63].down.present());
  initialize_random(set, config, 1);
  set.zero();
}

TEST(InitializeRandom, DistributionAndConstants) {
  const auto device = make_cpu_device();
  const ModelConfig config = find_preset("tiny-qwen2");
  ParameterSet set(*device, config, DType::kF32, "weights");
  initialize_random(set, config, 7);
  double sum = 0, squares = 0;
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < set.size(); ++i) {
    const View view = set.view(i);
    const std::string& name = set.specs()[static_cast<std::size_t>(i)].name;
    for (std::int64_t j = 0; j < view.elements(); ++j) {
      const float x = view.as<float>()[j];
      if (name.find("norm") != std::string::npos) {
        ASSERT_EQ(x, 1.0f) << name;
      } else if (name.ends_with("bias")) {
        ASSERT_EQ(x, 0.0f) << name;
      } else {
        sum += x;
        squares += double{x} * x;
        ++count;
      }
    }
  }
  const double n = static_cast<double>(count);
  EXPECT_NEAR(sum / n, 0.0, 4 * 0.02 / std::sqrt(n));
  EXPECT_NEAR(std::sqrt(squares / n), 0.02, 0.02 * 4 / std::sqrt(2 * n));
}

TEST(InitializeRandom, DependsOnSeedAloneAndNotOnThreads) {
  const auto device = make_cpu_device();
  const ModelConfig config = find_preset("tiny-llama");
  ParameterSet set(*device, config, DType::kF32, "weights");
  const int threads = thread_count();
  set_thread_count(1);
  initialize_random(set, config, 7);
  const auto one = copy_of(set);
  set_thread_count(3);
  initialize_random(set, config, 7);
  EXPECT_EQ(copy_of(set), one);
  initialize_random(set, config, 8);
  EXPECT_NE(copy_of(set), one);
  set_thread_count(threads);
  // Two matrices of the same shape get different values.
  const ModelParameters model = set.model();
  EXPECT_NE(std::memcmp(model.layers[0].gate.data(), model.layers[0].up.data(),
                        static_cast<std::size_t>(model.layers[0].up.bytes())),
            0);
}

TEST(InitializeRandom, RoundsToTheType) {
  const auto device = make_cpu_device();
  const ModelConfig config = find_preset("tiny-llama");
  ParameterSet wide(*device, config, DType::kF32, "weights"),
      narrow(*device, config, DType::kBF16, "weights");
  initialize_random(wide, config, 7);
  initialize_random(narrow, config, 7);
  const View a = wide.model().layers[1].down, b = narrow.model().layers[1].down;
  for (std::int64_t i = 0; i < a.elements(); ++i)
    ASSERT_EQ(to_bf16(a.as<float>()[i]).bits, b.as<bf16>()[i].bits);
}

}  // namespace
}  // namespace longstride
