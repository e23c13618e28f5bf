// Model directories that bitsandbytes quantized: read to the same values, written again, refused
// when something is wrong.
#include <gtest/gtest.h>

#include <cstring>

#include "model/bitsandbytes_tensors.h"
#include "model/model_directory.h"
#include "model/quantize_specs.h"
#include "ops/quantize.h"
#include "tests/model/fixtures.h"
#include "tests/where.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;
using testing::expect_error;
using testing::TemporaryDirectory;

fs::path fixture(const std::string& name) {
  return source_directory() / "tests" / "model" / "quantized" / name;
}

class QuantizedDirectory : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Device> device_ = make_cpu_device();
};

TEST_P(QuantizedDirectory, ProjectionsHaveTheValuesOfBitsandbytes) {
  const ModelDirectory model = ModelDirectory::open(fixture(GetParam()));
  const SafetensorsReader expected =
      SafetensorsReader::open_file(fixture(GetParam()) / "expected.safetensors");
  ParameterSet weights(*device_, model.specs(), "weights");
  model.load(weights);
  int count = 0;
  for (std::int64_t i = 0; i < weights.size(); ++i) {
    const ParameterSpec& spec = weights.specs()[static_cast<std::size_t>(i)];
    EXPECT_EQ(is_block_format(spec.dtype), is_projection(spec)) << spec.name;
    EXPECT_EQ(spec.trainable, !is_projection(spec)) << spec.name;
    if (!is_projection(spec)) continue;
    std::vector<float> values(static_cast<std::size_t>(spec.shape.elements()));
    ops::widen_weight(device_->stream(), {.q_OI = weights.view(i),
                                          .y_OW = View(values.data(), DType::kF32, spec.shape)});
    EXPECT_EQ(values, expected.read_floats(spec.name)) << spec.name;
    ++count;
  }
  EXPECT_EQ(count, 14);
}

// The tensors come back byte by byte, but for the text of the state, which may be another.
TEST_P(QuantizedDirectory, IsWrittenAgain) {
  const ModelDirectory model = ModelDirectory::open(fixture(GetParam()));
  ParameterSet weights(*device_, model.specs(), "weights");
  model.load(weights);
  const TemporaryDirectory written;
  write_model_directory(written.path(), model.config(), weights);
  const ModelDirectory again = ModelDirectory::open(written.path());
  EXPECT_EQ(again.reader().names(), model.reader().names());
  for (const std::string& name : model.reader().names()) {
    const auto a = model.reader().bytes(name), b = again.reader().bytes(name);
    if (name.find("quant_state") != std::string::npos)
      EXPECT_EQ(Json::parse(std::string(reinterpret_cast<const char*>(a.data()), a.size())),
                Json::parse(std::string(reinterpret_cast<const char*>(b.data()), b.size())))
          << name;
    else
      EXPECT_TRUE(std::ranges::equal(a, b)) << name;
  }
  EXPECT_EQ(again.config().raw, model.config().raw);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, QuantizedDirectory, ::testing::Values("nf4", "nf4-wide", "int8"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// Quantized at load, a plain directory is written as bitsandbytes would and says so.
TEST(QuantizeAtLoad, TheResultIsReadAgain) {
  const auto device = make_cpu_device();
  const ModelDirectory plain =
      ModelDirectory::open(source_directory() / "tests" / "parity" / "fixtures" / "bf16");
  for (const char* word : {"nf4", "int8"}) {
    std::vector<ParameterSpec> specs = plain.specs();
    quantize_projections(specs, format_of_word(word).value(), "model.quantize");
    ParameterSet weights(*device, specs, "weights");
    const std::int64_t before = device->allocated_bytes();
    plain.load(weights);
    EXPECT_EQ(device->allocated_bytes(), before);  // the temporary tensor is gone
    const TemporaryDirectory written;
    write_model_directory(written.path(), plain.config(), weights);
    const ModelDirectory again = ModelDirectory::open(written.path());
    EXPECT_EQ(again.config().raw.at("quantization_config").at("quant_method"), "bitsandbytes");
    EXPECT_EQ(again.config().raw.at("dtype"), "bfloat16");
    EXPECT_EQ(quantization_of(again.specs()), word);
    ParameterSet read(*device, again.specs(), "weights");
    again.load(read);
    ASSERT_EQ(read.bytes(), weights.bytes());
    EXPECT_EQ(std::memcmp(read.data(), weights.data(), static_cast<std::size_t>(read.bytes())), 0);
  }
}

TEST(QuantizeAtLoad, AnotherFormatThanTheFilesIsRefused) {
  std::vector<ParameterSpec> specs = ModelDirectory::open(fixture("int8")).specs();
  quantize_projections(specs, DType::kInt8Rows, "model.quantize");
  expect_error([&] { quantize_projections(specs, DType::kNf4, "model.quantize"); },
               {"model.quantize", "nf4", "int8", "q_proj"});
}

// A fixture whose tensors are changed before they are written.
class Damaged {
 public:
  explicit Damaged(const std::string& name) : from_(SafetensorsReader::open_model(fixture(name))) {
    fs::copy_file(fixture(name) / "config.json", directory_.path() / "config.json");
    for (const std::string& tensor : from_.names()) {
      Shape shape;
      for (const std::int64_t d : from_.info(tensor).shape) shape.append(d);
      tensors_[tensor] = {{tensor, *from_.info(tensor).dtype, shape},
                          {from_.bytes(tensor).begin(), from_.bytes(tensor).end()}};
    }
  }
  struct Tensor {
    TensorToWrite header;
    std::vector<std::byte> bytes;
  };
  std::map<std::string, Tensor>& tensors() { return tensors_; }
  Tensor& operator[](const std::string& name) { return tensors_.at(name); }
  void set_text(const std::string& name, const std::string& text) {
    const auto bytes = std::as_bytes(std::span(text));
    tensors_.at(name).bytes.assign(bytes.begin(), bytes.end());
    tensors_.at(name).header.shape = {std::ssize(text)};
  }
  void refused(std::initializer_list<std::string> parts) {
    std::vector<TensorToWrite> headers;
    std::vector<const Tensor*> order;
    for (const auto& [name, tensor] : tensors_) {
      headers.push_back(tensor.header);
      order.push_back(&tensor);
    }
    write_safetensors_model(directory_.path(), headers, [&](std::int64_t i, const ByteSink& sink) {
      sink(order[static_cast<std::size_t>(i)]->bytes);
    });
    expect_error(
        [&] {
          const ModelDirectory model = ModelDirectory::open(directory_.path());
          const auto device = make_cpu_device();
          ParameterSet weights(*device, model.specs(), "weights");
          model.load(weights);
        },
        parts);
  }
  const fs::path& path() const { return directory_.path(); }

 private:
  SafetensorsReader from_;
  TemporaryDirectory directory_;
  std::map<std::string, Tensor> tensors_;
};

constexpr const char* kWeight = "model.layers.1.mlp.up_proj.weight";
const std::string kStateName = std::string(kWeight) + ".quant_state.bitsandbytes__nf4";

TEST(QuantizedDirectoryDamage, IsNamed) {
  {
    Damaged d("nf4");  // a cut tensor
    d[kWeight].bytes.resize(64);
    d[kWeight].header.shape = {64, 1};
    d.refused({"model.safetensors", kWeight, "[64, 1]"});
  }
  {
    Damaged d("nf4");
    d.tensors().erase(std::string(kWeight) + ".absmax");
    d.refused({"there is no tensor", "up_proj.weight.absmax"});
  }
  {
    Damaged d("nf4");  // another format
    auto node = d.tensors().extract(kStateName);
    node.key() = node.mapped().header.name =
        std::string(kWeight) + ".quant_state.bitsandbytes__fp4";
    d.tensors().insert(std::move(node));
    d.refused({kWeight, "FP4", "model.quantize"});
  }
  {
    Damaged d("nf4");
    d.set_text(kStateName, R"({"quant_type": "nf4", "blocksize": 128, "shape": [80, 48]})");
    d.refused({kStateName, "blocksize 128, not 64"});
  }
  {
    Damaged d("nf4");
    d.set_text(kStateName, R"({"quant_type": "nf4", "blocksize": 64, "shape": [48, 80]})");
    d.refused({kStateName, "shape [48,80], not [80,48]"});
  }
  {
    Damaged d("nf4");
    d.set_text(kStateName, "{");
    d.refused({kStateName, "JSON"});
  }
  {
    Damaged d("nf4");
    d[std::string(kWeight) + ".quant_map"].bytes[0] = std::byte{1};
    d.refused({"up_proj.weight.quant_map", "another table"});
  }
  {
    Damaged d("nf4");
    std::ranges::fill(d[std::string(kWeight) + ".nested_absmax"].bytes, std::byte{0xff});
    d.refused({"up_proj.weight.nested_absmax", "not finite", "index 0"});
  }
  {
    Damaged d("int8");
    d["model.layers.1.mlp.up_proj.weight_format"].bytes[0] = std::byte{2};
    d.refused({"up_proj.weight_format", "by rows"});
  }
  {
    Damaged d("int8");
    d["model.layers.1.mlp.up_proj.SCB"].header = {
        "model.layers.1.mlp.up_proj.SCB", DType::kF32, {40, 2}};
    d.refused({"up_proj.SCB", "[40, 2]", "[80]"});
  }
}

TEST(QuantizedDirectoryDamage, OtherMethodsAreRefused) {
  Damaged d("nf4");
  Json config = read_json(d.path() / "config.json");
  config["quantization_config"]["quant_method"] = "gptq";
  testing::write_text(d.path() / "config.json", config.dump());
  d.refused({"quantization_config", "bitsandbytes"});
}

}  // namespace
}  // namespace longstride
