#include "model/model_directory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <map>
#include <set>

#include "base/files.h"
#include "model/presets.h"
#include "tests/model/fixtures.h"

namespace longstride {
namespace {

using testing::expect_error;
using testing::TemporaryDirectory;
using testing::write_text;

struct Tensor {
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<std::byte> bytes;
};
using Tensors = std::map<std::string, Tensor>;

// The tensors of a preset with random weights, which a test may corrupt before they are written.
Tensors tensors_of(const ModelConfig& config) {
  const auto device = make_cpu_device();
  ParameterSet set(*device, config, DType::kF32, "weights");
  initialize_random(set, config, 3);
  Tensors tensors;
  for (std::int64_t i = 0; i < set.size(); ++i) {
    const View view = set.view(i);
    const auto* data = static_cast<const std::byte*>(view.data());
    tensors[set.specs()[static_cast<std::size_t>(i)].name] = {
        view.dtype(), view.shape(), {data, data + view.bytes()}};
  }
  return tensors;
}

void write_model(const std::filesystem::path& path, const ModelConfig& config,
                 const Tensors& tensors) {
  write_text(path / "config.json", config.raw.dump());
  std::vector<TensorToWrite> list;
  for (const auto& [name, t] : tensors) list.push_back({name, t.dtype, t.shape});
  write_safetensors_model(path, list, [&](std::int64_t i, const ByteSink& sink) {
    sink(tensors.at(list[static_cast<std::size_t>(i)].name).bytes);
  });
}

// Writes a preset's model after `spoil` has changed its tensors, and expects it to be refused when
// opened or loaded.
void expect_refused(const char* preset, const std::function<void(Tensors&)>& spoil,
                    std::initializer_list<std::string> parts) {
  const TemporaryDirectory directory;
  const ModelConfig config = find_preset(preset);
  Tensors tensors = tensors_of(config);
  spoil(tensors);
  write_model(directory.path(), config, tensors);
  const auto device = make_cpu_device();
  expect_error(
      [&] {
        const ModelDirectory model = ModelDirectory::open(directory.path());
        ParameterSet set(*device, model.specs(), "weights");
        model.load(set);
      },
      parts);
}

std::vector<DType> dtypes_of(const std::vector<ParameterSpec>& specs) {
  std::vector<DType> dtypes;
  for (const ParameterSpec& spec : specs) dtypes.push_back(spec.dtype);
  return dtypes;
}

bool same_bytes(const ParameterSet& a, const ParameterSet& b) {
  return a.bytes() == b.bytes() &&
         std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.bytes())) == 0;
}

TEST(ModelDirectory, RoundTripOfEveryFamilyAndType) {
  const auto device = make_cpu_device();
  for (const char* preset : {"tiny-qwen2", "tiny-qwen3", "tiny-llama", "tiny-mistral", "tiny-phi3",
                             "tiny-olmo2", "tiny-gemma3"})
    for (const auto& [dtype, name] : std::map<DType, std::string>{
             {DType::kF32, "float32"}, {DType::kF16, "float16"}, {DType::kBF16, "bfloat16"}}) {
      SCOPED_TRACE(fmt::format("{} {}", preset, name));
      const TemporaryDirectory directory;
      const ModelConfig config = find_preset(preset);
      ParameterSet set(*device, config, dtype, "weights");
      initialize_random(set, config, 11);
      const auto written = write_model_directory(directory.path(), config, set);
      for (const WrittenFile& file : written)
        EXPECT_EQ(file.checksum, checksum_of_file(directory.path() / file.name)) << file.name;

      const ModelDirectory model = ModelDirectory::open(directory.path());
      EXPECT_EQ(dtypes_of(model.specs()), dtypes_of(set.specs()));
      EXPECT_EQ(model.config().raw.at("torch_dtype"), name);
      Json before = config.raw, after = model.config().raw;
      before.erase("torch_dtype"), after.erase("torch_dtype");
      EXPECT_EQ(before, after);
      ParameterSet loaded(*device, model.specs(), "weights");
      model.load(loaded);
      EXPECT_TRUE(same_bytes(set, loaded));
    }
}

TEST(ModelDirectory, ShardsAndIndex) {
  const auto device = make_cpu_device();
  const TemporaryDirectory directory;
  const ModelConfig config = find_preset("tiny-llama");
  ParameterSet set(*device, config, DType::kF32, "weights");
  initialize_random(set, config, 11);
  write_model_directory(directory.path(), config, set, {}, 100'000);
  EXPECT_TRUE(std::filesystem::exists(directory.path() / "model.safetensors.index.json"));
  EXPECT_FALSE(std::filesystem::exists(directory.path() / "model.safetensors"));
  const ModelDirectory model = ModelDirectory::open(directory.path());
  ParameterSet loaded(*device, model.specs(), "weights");
  model.load(loaded);
  EXPECT_TRUE(same_bytes(set, loaded));
}

TEST(ModelDirectory, WidensIntoF32) {
  const auto device = make_cpu_device();
  const TemporaryDirectory directory;
  const ModelConfig config = find_preset("tiny-qwen3");
  ParameterSet narrow(*device, config, DType::kBF16, "weights");
  initialize_random(narrow, config, 11);
  write_model_directory(directory.path(), config, narrow);
  ParameterSet masters(*device, config, DType::kF32, "masters");
  ModelDirectory::open(directory.path()).load(masters);
  const View a = narrow.model().layers[1].up, b = masters.model().layers[1].up;
  for (std::int64_t i = 0; i < a.elements(); ++i)
    ASSERT_EQ(to_float(a.as<bf16>()[i]), b.as<float>()[i]);
}

TEST(ModelDirectory, MixedTypesAreCalledFloat32) {
  const auto device = make_cpu_device();
  const TemporaryDirectory directory;
  const ModelConfig config = find_preset("tiny-llama");
  std::vector<ParameterSpec> specs = parameter_specs(config, DType::kBF16);
  specs[1].dtype = DType::kF32;
  const ParameterSet set(*device, specs, "weights");
  write_model_directory(directory.path(), config, set);
  EXPECT_EQ(read_json(directory.path() / "config.json").at("torch_dtype"), "float32");
  EXPECT_EQ(dtypes_of(ModelDirectory::open(directory.path()).specs()), dtypes_of(specs));
}

TEST(ModelDirectory, KeepsTheSpellingOfDtype) {
  const auto device = make_cpu_device();
  const TemporaryDirectory directory;
  ModelConfig config = find_preset("tiny-llama");
  config.raw.erase("torch_dtype");
  const ParameterSet set(*device, config, DType::kBF16, "weights");
  write_model_directory(directory.path(), config, set);
  const Json json = read_json(directory.path() / "config.json");
  EXPECT_EQ(json.at("dtype"), "bfloat16");
  EXPECT_FALSE(json.contains("torch_dtype"));
}

TEST(ModelDirectory, BringsTokenizerAndGenerationConfigAlong) {
  const auto device = make_cpu_device();
  const TemporaryDirectory source, target;
  const std::vector<std::string> wanted{
      "added_tokens.json", "chat_template.jinja",     "generation_config.json",
      "merges.txt",        "special_tokens_map.json", "tokenizer.json",
      "tokenizer.model",   "tokenizer_config.json",   "vocab.json"};
  for (const std::string& name : wanted) write_text(source.path() / name, "contents of " + name);
  for (const char* name : {"README.md", "optimizer.pt", "model.safetensors"})
    write_text(source.path() / name, "no");
  std::filesystem::create_directory(source.path() / "tokenizer_dir");
  const ModelConfig config = find_preset("tiny-llama");
  const ParameterSet set(*device, config, DType::kBF16, "weights");
  std::set<std::string> names;
  for (const WrittenFile& file :
       write_model_directory(target.path(), config, set, read_side_files(source.path()))) {
    names.insert(file.name);
    EXPECT_EQ(file.checksum, checksum_of_file(target.path() / file.name));
  }
  for (const std::string& name : wanted) {
    EXPECT_TRUE(names.contains(name)) << name;
    EXPECT_EQ(read_text(target.path() / name), "contents of " + name);
  }
  EXPECT_EQ(names.size(), wanted.size() + 2);  // and config.json, model.safetensors
}

TEST(ModelDirectory, MakesAGenerationConfig) {
  const auto device = make_cpu_device();
  const TemporaryDirectory directory;
  ModelConfig config = find_preset("tiny-llama");
  config.raw["eos_token_id"] = 5;
  const ParameterSet set(*device, config, DType::kF32, "weights");
  write_model_directory(directory.path(), config, set);
  const Json json = read_json(directory.path() / "generation_config.json");
  EXPECT_EQ(json.at("eos_token_id"), 5);
  EXPECT_FALSE(json.contains("bos_token_id"));
}

TEST(ModelDirectory, NotADirectory) {
  expect_error([] { ModelDirectory::open("/nonexistent/model"); },
               {"/nonexistent/model: no such directory"});
}

TEST(ModelDirectory, MissingTensor) {
  expect_refused("tiny-llama", [](Tensors& t) { t.erase("model.layers.1.mlp.up_proj.weight"); },
                 {"missing tensors: model.layers.1.mlp.up_proj.weight"});
}

TEST(ModelDirectory, MissingHeadOfAnUntiedModel) {
  expect_refused("tiny-llama", [](Tensors& t) { t.erase("lm_head.weight"); },
                 {"missing tensors: lm_head.weight", "tie_word_embeddings"});
}

TEST(ModelDirectory, ManyMissingTensorsAreCounted) {
  expect_refused("tiny-llama",
                 [](Tensors& t) {
                   std::erase_if(
                       t, [](const auto& e) { return e.first.starts_with("model.layers.1."); });
                 },
                 {"missing tensors: model.layers.1.input_layernorm.weight", "and 5 more"});
}

TEST(ModelDirectory, NamesWithoutPrefix) {
  expect_refused("tiny-llama",
                 [](Tensors& t) {
                   Tensors bare;
                   for (auto& [name, tensor] : t)
                     bare[name.starts_with("model.") ? name.substr(6) : name] = tensor;
                   t = bare;
                 },
                 {"missing tensors", "saved from the bare model"});
}

TEST(ModelDirectory, UnexpectedTensor) {
  expect_refused("tiny-llama",
                 [](Tensors& t) {
                   t["model.layers.2.mlp.up_proj.weight"] = t["model.layers.1.mlp.up_proj.weight"];
                 },
                 {"does not have", "model.layers.2.mlp.up_proj.weight"});
  expect_refused("tiny-mistral",
                 [](Tensors& t) {
                   t["model.layers.0.self_attn.q_proj.bias"] = {
                       DType::kF32, {64}, std::vector<std::byte>(256)};
                 },
                 {"a mistral model", "model.layers.0.self_attn.q_proj.bias"});
}

TEST(ModelDirectory, WrongShape) {
  expect_refused("tiny-llama",
                 [](Tensors& t) {
                   t["model.layers.0.mlp.up_proj.weight"].shape = Shape{64, 160};
                 },
                 {"model.layers.0.mlp.up_proj.weight has shape [64, 160], but config.json makes it "
                  "[160, 64]"});
  expect_refused("tiny-llama",
                 [](Tensors& t) {
                   t["model.norm.weight"].shape = Shape{64, 1};
                 },
                 {"model.norm.weight has shape [64, 1]"});
}

TEST(ModelDirectory, WrongType) {
  expect_refused("tiny-llama", [](Tensors& t) { t["model.norm.weight"].dtype = DType::kI32; },
                 {"model.norm.weight has dtype I32", "F32, F16 or BF16"});
}

TEST(ModelDirectory, NanAndInfinity) {
  const auto put = [](Tensors& t, const std::string& name, std::size_t index, float value) {
    std::memcpy(t[name].bytes.data() + 4 * index, &value, 4);
  };
  expect_refused(
      "tiny-llama",
      [&](Tensors& t) {
        put(t, "model.layers.1.mlp.up_proj.weight", 5000, std::numeric_limits<float>::quiet_NaN());
      },
      {"model.safetensors: tensor model.layers.1.mlp.up_proj.weight holds nan at index 5000"});
  expect_refused(
      "tiny-llama",
      [&](Tensors& t) { put(t, "lm_head.weight", 20479, -std::numeric_limits<float>::infinity()); },
      {"tensor lm_head.weight holds -inf at index 20479"});
}

TEST(ModelDirectory, NanInNarrowTypes) {
  for (const auto& [dtype, bits] :
       std::map<DType, std::uint16_t>{{DType::kBF16, 0x7fc0}, {DType::kF16, 0x7c00}}) {
    expect_refused("tiny-llama",
                   [&, dtype_ = dtype, bits_ = bits](Tensors& t) {
                     Tensor& tensor = t["model.norm.weight"];
                     tensor.dtype = dtype_;
                     tensor.bytes = std::vector<std::byte>(128);
                     std::memcpy(tensor.bytes.data() + 2 * 63, &bits_, 2);
                   },
                   {"tensor model.norm.weight holds", "at index 63"});
  }
}

TEST(ModelDirectory, HarmlessTensorsAreIgnored) {
  const TemporaryDirectory directory;
  const ModelConfig config = find_preset("tiny-qwen2");
  Tensors tensors = tensors_of(config);
  tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = {
      DType::kF32, {8}, std::vector<std::byte>(32)};
  tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"];  // tied, and equal
  write_model(directory.path(), config, tensors);
  const auto device = make_cpu_device();
  const ModelDirectory model = ModelDirectory::open(directory.path());
  ParameterSet set(*device, model.specs(), "weights");
  EXPECT_NO_THROW(model.load(set));
}

TEST(ModelDirectory, TiedHeadThatDiffers) {
  expect_refused("tiny-qwen2",
                 [](Tensors& t) {
                   t["lm_head.weight"] = t["model.embed_tokens.weight"];
                   t["lm_head.weight"].bytes[100] ^= std::byte{1};
                 },
                 {"lm_head.weight differs from model.embed_tokens.weight", "tie_word_embeddings"});
}

}  // namespace
}  // namespace longstride
