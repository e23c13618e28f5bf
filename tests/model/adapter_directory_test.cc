// Adapters that PEFT wrote (tests/parity/adapters), read, written again and spoilt.
#include "model/adapter_directory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <map>

#include "base/files.h"
#include "tests/model/fixtures.h"
#include "tests/where.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;
using testing::expect_error;
using testing::TemporaryDirectory;
using testing::write_text;

const fs::path kParity = source_directory() / "tests" / "parity";

fs::path adapter_path(const std::string& name) { return kParity / "adapters" / name; }

ModelConfig base_of(const std::string& adapter) {
  const Json expected = read_json(adapter_path(adapter) / "expected.json");
  return read_config(kParity / "fixtures" / expected.at("base").get<std::string>());
}

AdapterDirectory open_adapter(const std::string& name) {
  return AdapterDirectory::open(adapter_path(name), base_of(name));
}

struct StoredTensor {
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<std::byte> bytes;
};
using StoredTensors = std::map<std::string, StoredTensor>;

StoredTensors stored(const AdapterDirectory& adapter) {
  StoredTensors tensors;
  for (const AdapterTensor& t : adapter.tensors()) {
    const auto bytes = adapter.reader().bytes(t.name);
    tensors[t.name] = {*adapter.reader().info(t.name).dtype, t.shape, {bytes.begin(), bytes.end()}};
  }
  return tensors;
}

void write_adapter(const fs::path& directory, const AdapterConfig& config,
                   const StoredTensors& tensors) {
  std::vector<TensorToWrite> list;
  for (const auto& [name, t] : tensors) list.push_back({name, t.dtype, t.shape});
  const auto written = write_adapter_directory(
      directory, config, {list, [&](std::int64_t i, const ByteSink& sink) {
                            sink(tensors.at(list[static_cast<std::size_t>(i)].name).bytes);
                          }});
  ASSERT_EQ(written.size(), 2u);
  for (const WrittenFile& file : written)
    EXPECT_EQ(file.checksum, checksum_of_file(directory / file.name)) << file.name;
}

// Each fixture opens, with every tensor that PEFT wrote, and survives being written and read.
TEST(AdapterDirectory, ReadsAndWritesWhatPeftWrites) {
  for (const auto& entry : fs::directory_iterator(kParity / "adapters")) {
    const std::string name = entry.path().filename().string();
    SCOPED_TRACE(name);
    const AdapterDirectory adapter = open_adapter(name);
    EXPECT_EQ(adapter.tensors().size(), adapter.reader().names().size());
    const TemporaryDirectory copy;
    write_adapter(copy.path(), adapter.config(), stored(adapter));
    const AdapterDirectory again = AdapterDirectory::open(copy.path(), base_of(name));
    EXPECT_EQ(again.config(), adapter.config());
    for (const AdapterTensor& t : adapter.tensors())
      EXPECT_EQ(again.floats(t), adapter.floats(t)) << t.name;
  }
}

TEST(AdapterDirectory, KnowsWhatTheFixturesAre) {
  AdapterConfig c = open_adapter("llama-rank-64-rslora").config();
  EXPECT_EQ(c.rank, 64);
  EXPECT_EQ(c.scale(), 2.0);
  EXPECT_EQ(c.targets.size(), 7u);
  EXPECT_TRUE(c.layers.empty());
  c = open_adapter("mistral-one-layer").config();
  EXPECT_EQ(c.layers, std::vector<std::int64_t>{1});
  EXPECT_EQ(c.targets, (std::vector<std::string>{"k_proj", "o_proj", "gate_proj", "down_proj"}));
  EXPECT_EQ(open_adapter("llama-pattern").config().targets,
            (std::vector<std::string>{"q_proj", "up_proj"}));
  EXPECT_TRUE(open_adapter("qwen3-tied-together").config().tie_weights);
  const AdapterDirectory tied = open_adapter("qwen2-tied-embedding");
  EXPECT_NE(tied.find("model.embed_tokens.weight"), nullptr);
  EXPECT_EQ(tied.find("lm_head.weight"), nullptr);
}

TEST(AdapterDirectory, LoadsOntoADevice) {
  for (const char* name : {"qwen2-all", "qwen2-bf16-adapter"}) {
    SCOPED_TRACE(name);
    const AdapterDirectory adapter = open_adapter(name);
    const AdapterTensor* t = adapter.find(adapter_parameter_name(1, "k_proj", 'B'));
    ASSERT_NE(t, nullptr);
    const std::vector<float> right = adapter.floats(*t);
    const auto device = make_cpu_device();
    const auto memory = device->allocate(t->shape.elements() * 4, "a test");
    adapter.load(*t, *device, View(memory->data(), DType::kF32, t->shape));
    EXPECT_EQ(std::memcmp(memory->data(), right.data(), right.size() * 4), 0);
    const std::span<const std::byte> bytes = adapter.reader().bytes(t->name);
    adapter.load(*t, *device,
                 View(memory->data(), *adapter.reader().info(t->name).dtype, t->shape));
    EXPECT_EQ(std::memcmp(memory->data(), bytes.data(), bytes.size()), 0);
  }
}

// Writes qwen2-all after `spoil` has changed its tensors, and expects it to be refused.
void expect_refused(const std::function<void(StoredTensors&)>& spoil,
                    std::initializer_list<std::string> parts) {
  const AdapterDirectory adapter = open_adapter("qwen2-all");
  StoredTensors tensors = stored(adapter);
  spoil(tensors);
  const TemporaryDirectory directory;
  write_text(directory.path() / kAdapterConfig, adapter_config_json(adapter.config()).dump());
  std::vector<TensorToWrite> list;
  for (const auto& [name, t] : tensors) list.push_back({name, t.dtype, t.shape});
  write_safetensors_file(directory.path() / kAdapterWeights, list,
                         [&](std::int64_t i, const ByteSink& sink) {
                           sink(tensors.at(list[static_cast<std::size_t>(i)].name).bytes);
                         });
  expect_error([&] { AdapterDirectory::open(directory.path(), base_of("qwen2-all")); }, parts);
}

TEST(AdapterDirectory, RefusesBadTensors) {
  const std::string a = adapter_tensor_name(0, "q_proj", 'A');
  expect_refused([&](StoredTensors& t) { t.erase(a); }, {"missing tensors: " + a, "another model"});
  expect_refused([&](StoredTensors& t) { t["base_model.model.extra"] = t.at(a); },
                 {"base_model.model.extra", "do not ask for"});
  expect_refused(
      [&](StoredTensors& t) {
        t.at(a).shape = {t.at(a).shape[1], t.at(a).shape[0]};
      },
      {a, "has shape [32, 8]", "make it [8, 32]", "tests/parity/fixtures/qwen2"});
  expect_refused([&](StoredTensors& t) { t.at(a).dtype = DType::kI32; }, {a, "dtype I32"});
  expect_refused(
      [&](StoredTensors& t) {
        const float nan = std::numeric_limits<float>::quiet_NaN();
        std::memcpy(t.at(a).bytes.data() + 20, &nan, 4);
      },
      {a, "holds nan at index 5"});
}

TEST(AdapterDirectory, RefusesAnotherModelAndMissingOrCutFiles) {
  expect_error([] { AdapterDirectory::open(adapter_path("qwen2-all"), base_of("llama-pattern")); },
               {"adapter_model.safetensors", "k_proj", "another model"});
  const ModelConfig model = base_of("qwen2-all");
  const TemporaryDirectory directory;
  const auto expect = [&](std::initializer_list<std::string> parts) {
    expect_error([&] { AdapterDirectory::open(directory.path(), model); }, parts);
  };
  expect({"adapter_config.json: no such file"});
  fs::copy_file(adapter_path("qwen2-all") / kAdapterConfig, directory.path() / kAdapterConfig);
  expect({"adapter_model.safetensors: no such file"});
  write_text(directory.path() / "adapter_model.bin", "x");
  expect({"adapter_model.safetensors: no such file", "safe_serialization"});
  const std::string whole = read_text(adapter_path("qwen2-all") / kAdapterWeights);
  write_text(directory.path() / kAdapterWeights, whole.substr(0, whole.size() - 100));
  expect({"adapter_model.safetensors"});
  expect_error([&] { AdapterDirectory::open(directory.path() / "none", model); },
               {"none: no such directory"});
}

TEST(AdapterDirectory, TiedTensorsMustBeEqual) {
  const AdapterDirectory adapter = open_adapter("qwen3-tied-together");
  StoredTensors tensors = stored(adapter);
  std::vector<std::byte>& head = tensors.at("base_model.model.lm_head.weight").bytes;
  head[1] ^= std::byte{1};
  const TemporaryDirectory directory;
  write_adapter(directory.path(), adapter.config(), tensors);
  expect_error([&] { AdapterDirectory::open(directory.path(), base_of("qwen3-tied-together")); },
               {"lm_head.weight", "differs from", "ensure_weight_tying"});
}

TEST(AdapterDirectory, DoesNotWriteValuesThatAreNotFinite) {
  const AdapterDirectory adapter = open_adapter("qwen2-all");
  StoredTensors tensors = stored(adapter);
  const std::string b = adapter_tensor_name(1, "down_proj", 'B');
  const float infinity = std::numeric_limits<float>::infinity();
  std::memcpy(tensors.at(b).bytes.data(), &infinity, 4);
  const TemporaryDirectory directory;
  expect_error([&] { write_adapter(directory.path(), adapter.config(), tensors); },
               {"adapter's weights are broken", b});
}

}  // namespace
}  // namespace longstride
