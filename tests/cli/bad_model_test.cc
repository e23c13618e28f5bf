// Broken model directories are refused, naming the file and the tensor, and nothing is written.
#include <cstring>
#include <limits>

#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

std::string length_of(std::uint64_t n) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>((n >> (8 * i)) & 0xff));
  return bytes;
}

class BadModel : public ::testing::Test {
 protected:
  BadModel() { run_.write_model("model", find_preset("tiny-llama")); }

  fs::path weights() const { return run_.path("model/model.safetensors"); }

  void expect_refused(const std::vector<std::string>& parts) const {
    EXPECT_TRUE(refused(run_.train({"--model.preset=", "--model.path=model"}), parts));
    EXPECT_TRUE(run_.nothing_written());
    EXPECT_TRUE(refused(run_.run({"gradients", "--model", "model", "--tokens", "tokens.bin",
                                  "--out", "g/g.safetensors"}),
                        parts));
    EXPECT_TRUE(run_.nothing_written("g"));
  }

  // The weights file after `f` has changed its header and its data.
  template <class F>
  void change(const F& f) const {
    const std::string bytes = read_text(weights());
    std::uint64_t length = 0;
    for (std::size_t i = 8; i-- > 0;) length = (length << 8) | static_cast<unsigned char>(bytes[i]);
    Json header = Json::parse(bytes.substr(8, length));
    std::string data = bytes.substr(8 + length);
    f(header, data);
    const std::string text = header.dump();
    write_file_atomic(weights(), length_of(text.size()) + text + data);
  }
  template <class F>
  void change_header(const F& f) const {
    change([&](Json& header, std::string&) { f(header); });
  }

  const RunDirectory run_;
};

constexpr const char* kNorm = "model.norm.weight";
constexpr const char* kQ = "model.layers.1.self_attn.q_proj.weight";

TEST_F(BadModel, WeightsCutShort) {
  fs::resize_file(weights(), 300000);
  expect_refused({"model/model.safetensors", "pass the end of the data", "cut short"});
}

TEST_F(BadModel, WeightsCutShortInTheHeader) {
  fs::resize_file(weights(), 100);
  expect_refused({"model/model.safetensors", "its header claims", "the file has 100"});
}

TEST_F(BadModel, AnEmptyWeightsFile) {
  fs::resize_file(weights(), 0);
  expect_refused({"model/model.safetensors", "0 bytes, too few for a header"});
}

TEST_F(BadModel, AHeaderOfAnExabyte) {
  write_file_atomic(weights(), length_of(std::uint64_t{1} << 60) + "{}");
  expect_refused({"model/model.safetensors", "1152921504606846976 bytes", "the file has 10"});
}

TEST_F(BadModel, OverlappingTensors) {
  change_header([](Json& header) {
    for (Json& offset : header[kQ]["data_offsets"]) offset = offset.get<std::int64_t>() - 4;
  });
  expect_refused({"model/model.safetensors", "overlap those of another tensor"});
}

TEST_F(BadModel, AWrongShape) {
  change_header([](Json& header) { header[kQ]["shape"] = {32, 128}; });
  expect_refused({"model/model.safetensors", kQ, "has shape [32, 128]", "config.json"});
}

TEST_F(BadModel, AWrongType) {
  change_header([](Json& header) {
    header[kNorm]["dtype"] = "I64";
    header[kNorm]["shape"] = {32};
  });
  expect_refused({"model/model.safetensors", kNorm, "dtype I64", "F32, F16 or BF16"});
}

TEST_F(BadModel, NotANumber) {
  change([](const Json& header, std::string& data) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const auto begin = header.at(kQ).at("data_offsets")[0].get<std::size_t>();
    std::memcpy(data.data() + begin + 17 * sizeof(nan), &nan, sizeof(nan));
  });
  expect_refused({"model/model.safetensors", kQ, "nan at index 17", "weights are broken"});
}

TEST_F(BadModel, AMissingTensor) {
  change_header([](Json& header) {
    header["elsewhere"] = header[kNorm];
    header.erase(kNorm);
  });
  expect_refused({"model: missing tensors: ", kNorm, "do not belong together"});
}

TEST_F(BadModel, AMissingShard) {
  fs::remove(weights());
  run_.write_model("model", find_preset("tiny-llama"), DType::kF32, 200000);
  const std::string shard = "model-00002-of-00003.safetensors";
  ASSERT_TRUE(fs::exists(run_.path("model/" + shard)));
  fs::remove(run_.path("model/" + shard));
  expect_refused({"model.safetensors.index.json", "shard " + shard + " is missing", "fetch"});
}

TEST_F(BadModel, NoWeights) {
  fs::remove(weights());
  expect_refused({"model: neither model.safetensors nor model.safetensors.index.json"});
}

TEST_F(BadModel, NoConfig) {
  fs::remove(run_.path("model/config.json"));
  expect_refused({"model/config.json"});
}

TEST_F(BadModel, AConfigThatIsNotJson) {
  write_file_atomic(run_.path("model/config.json"), "{\"model_type\": ");
  expect_refused({"model/config.json"});
}

TEST_F(BadModel, AnUnknownArchitecture) {
  Json config = Json::parse(run_.read("model/config.json"));
  config["model_type"] = "mamba2";
  write_file_atomic(run_.path("model/config.json"), config.dump());
  expect_refused({"model/config.json", "mamba2", "qwen2", "llama"});
}

TEST_F(BadModel, NoDirectory) {
  fs::remove_all(run_.path("model"));
  expect_refused({"model: no such directory", "a model is a Hugging Face directory"});
}

}  // namespace
}  // namespace longstride
