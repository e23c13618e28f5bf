// Reader and writer, over real files.
#include <gtest/gtest.h>

#include <cstring>

#include "base/files.h"
#include "model/safetensors_reader.h"
#include "model/safetensors_writer.h"
#include "tests/model/fixtures.h"

namespace longstride {
namespace {

using testing::expect_error;
using testing::TemporaryDirectory;
using testing::write_text;

std::vector<TensorToWrite> three_tensors() {
  return {{"half", DType::kBF16, {3}}, {"wide", DType::kF32, {2, 2}}, {"last", DType::kF32, {5}}};
}

// Tensor i is filled with bytes i + 1, passed in pieces of 3.
void give(std::int64_t i, std::int64_t bytes, const ByteSink& sink) {
  for (std::int64_t at = 0; at < bytes; at += 3)
    sink(std::vector<std::byte>(static_cast<std::size_t>(std::min<std::int64_t>(3, bytes - at)),
                                static_cast<std::byte>(i + 1)));
}

TensorSource source_of(const std::vector<TensorToWrite>& tensors) {
  return [&tensors](std::int64_t i, const ByteSink& sink) {
    const TensorToWrite& t = tensors[static_cast<std::size_t>(i)];
    give(i, t.shape.elements() * size_of(t.dtype), sink);
  };
}

void expect_contents(const SafetensorsReader& reader, const std::vector<TensorToWrite>& tensors) {
  ASSERT_EQ(reader.names().size(), tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(reader.info(tensors[i].name).dtype, tensors[i].dtype);
    const auto bytes = reader.bytes(tensors[i].name);
    EXPECT_EQ(static_cast<std::int64_t>(bytes.size()),
              tensors[i].shape.elements() * size_of(tensors[i].dtype));
    for (const std::byte b : bytes) ASSERT_EQ(b, static_cast<std::byte>(i + 1));
  }
}

TEST(SafetensorsWriter, OneFile) {
  const TemporaryDirectory directory;
  const auto tensors = three_tensors();
  const auto path = directory.path() / "x.safetensors";
  const WrittenFile written =
      write_safetensors_file(path, tensors, source_of(tensors), {{"step", "7"}});
  EXPECT_EQ(written.name, "x.safetensors");
  EXPECT_EQ(written.bytes, static_cast<std::int64_t>(std::filesystem::file_size(path)));
  EXPECT_EQ(written.checksum, checksum_of_file(path));
  const SafetensorsReader reader = SafetensorsReader::open_file(path);
  expect_contents(reader, tensors);
  EXPECT_EQ(reader.metadata().at("step"), "7");
  EXPECT_EQ(reader.total_bytes(), 6 + 16 + 20);
  // Aligned: the data begin at a multiple of 8, and wider types come before narrower ones.
  EXPECT_EQ(reader.info("wide").begin % 8, 0);
  EXPECT_EQ(reader.info("last").begin % 4, 0);
  EXPECT_GT(reader.info("half").begin, reader.info("last").begin);
}

TEST(SafetensorsWriter, NoTensors) {
  const TemporaryDirectory directory;
  write_safetensors_file(directory.path() / "x", {}, [](std::int64_t, const ByteSink&) {}, {});
  EXPECT_TRUE(SafetensorsReader::open_file(directory.path() / "x").names().empty());
}

TEST(SafetensorsWriter, ModelThatFitsOneShard) {
  const TemporaryDirectory directory;
  const auto tensors = three_tensors();
  const auto written = write_safetensors_model(directory.path(), tensors, source_of(tensors));
  ASSERT_EQ(written.size(), 1u);
  EXPECT_EQ(written[0].name, "model.safetensors");
  const SafetensorsReader reader = SafetensorsReader::open_model(directory.path());
  expect_contents(reader, tensors);
  EXPECT_EQ(reader.metadata().at("format"), "pt");
}

TEST(SafetensorsWriter, Shards) {
  const TemporaryDirectory directory;
  const auto tensors = three_tensors();
  // 6 + 16 bytes fill the first shard to the last byte.
  const auto written = write_safetensors_model(directory.path(), tensors, source_of(tensors), 22);
  ASSERT_EQ(written.size(), 3u);
  EXPECT_EQ(written[0].name, "model-00001-of-00002.safetensors");
  EXPECT_EQ(written[1].name, "model-00002-of-00002.safetensors");
  EXPECT_EQ(written[2].name, "model.safetensors.index.json");
  for (const WrittenFile& file : written) {
    EXPECT_EQ(file.bytes,
              static_cast<std::int64_t>(std::filesystem::file_size(directory.path() / file.name)));
    EXPECT_EQ(file.checksum, checksum_of_file(directory.path() / file.name));
  }
  const Json index = read_json(directory.path() / written[2].name);
  EXPECT_EQ(index["metadata"]["total_size"], 42);
  EXPECT_EQ(index["weight_map"]["wide"], written[0].name);
  EXPECT_EQ(index["weight_map"]["last"], written[1].name);
  const SafetensorsReader reader = SafetensorsReader::open_model(directory.path());
  expect_contents(reader, tensors);
  EXPECT_EQ(reader.file_of("half").filename(), written[0].name);
}

TEST(SafetensorsWriter, TensorLargerThanAShard) {
  const TemporaryDirectory directory;
  const auto tensors = three_tensors();
  EXPECT_EQ(write_safetensors_model(directory.path(), tensors, source_of(tensors), 1).size(), 4u);
  expect_contents(SafetensorsReader::open_model(directory.path()), tensors);
}

TEST(SafetensorsWriter, SourceThatGivesTooLittleOrTooMuch) {
  const TemporaryDirectory directory;
  const std::vector<TensorToWrite> tensors{{"a", DType::kU8, {4}}};
  for (const std::int64_t bytes : {3, 5})
    EXPECT_THROW(
        write_safetensors_file(directory.path() / "x", tensors,
                               [&](std::int64_t i, const ByteSink& sink) { give(i, bytes, sink); }),
        InternalError);
  const std::vector<TensorToWrite> twice{{"a", DType::kU8, {4}}, {"a", DType::kU8, {4}}};
  EXPECT_THROW(write_safetensors_file(directory.path() / "x", twice, source_of(twice)),
               InternalError);
}

TEST(SafetensorsWriter, UnwritableDirectory) {
  const std::vector<TensorToWrite> tensors{{"a", DType::kU8, {4}}};
  expect_error([&] { write_safetensors_model("/nonexistent", tensors, source_of(tensors)); },
               {"/nonexistent/model.safetensors"});
}

TEST(SafetensorsReader, FloatsOfEveryType) {
  const TemporaryDirectory directory;
  const std::vector<TensorToWrite> tensors{{"f32", DType::kF32, {2}},
                                           {"f16", DType::kF16, {2}},
                                           {"bf16", DType::kBF16, {2}},
                                           {"f64", DType::kF64, {2}},
                                           {"i32", DType::kI32, {2}}};
  const float f32s[] = {1.5f, -2.0f};
  const f16 f16s[] = {to_f16(1.5f), to_f16(-2.0f)};
  const bf16 bf16s[] = {to_bf16(1.5f), to_bf16(-2.0f)};
  const double f64s[] = {1.5, -2.0};
  const std::int32_t i32s[] = {1, 2};
  const std::span<const std::byte> data[] = {
      std::as_bytes(std::span(f32s)), std::as_bytes(std::span(f16s)),
      std::as_bytes(std::span(bf16s)), std::as_bytes(std::span(f64s)),
      std::as_bytes(std::span(i32s))};
  write_safetensors_file(directory.path() / "x", tensors,
                         [&](std::int64_t i, const ByteSink& sink) { sink(data[i]); });
  const SafetensorsReader reader = SafetensorsReader::open_file(directory.path() / "x");
  for (const char* name : {"f32", "f16", "bf16", "f64"})
    EXPECT_EQ(reader.read_floats(name), (std::vector<float>{1.5f, -2.0f})) << name;
  expect_error([&] { reader.read_floats("i32"); },
               {"tensor i32 has dtype I32", "not a floating-point"});
  expect_error([&] { reader.bytes("bf61"); }, {"no tensor bf61", "bf16"});
}

// Files whose header is not padded hold unaligned tensors; reading them must not rely on alignment.
TEST(SafetensorsReader, UnalignedTensors) {
  const TemporaryDirectory directory;
  const float value = 0.25f;
  std::string data = "x";
  data.append(reinterpret_cast<const char*>(&value), 4);
  write_text(
      directory.path() / "x",
      testing::safetensors_bytes(
          R"({"u":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"f":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})",
          data));
  EXPECT_EQ(SafetensorsReader::open_file(directory.path() / "x").read_floats("f"),
            std::vector<float>{0.25f});
}

TEST(SafetensorsReader, UnsupportedTypesAreListedButRefused) {
  const TemporaryDirectory directory;
  write_text(directory.path() / "x",
             testing::safetensors_bytes(
                 R"({"q":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]}})", "ab"));
  const SafetensorsReader reader = SafetensorsReader::open_file(directory.path() / "x");
  EXPECT_TRUE(reader.contains("q"));
  EXPECT_EQ(reader.info("q").dtype_name, "F8_E4M3");
  expect_error([&] { reader.bytes("q"); }, {"tensor q has dtype F8_E4M3", "not supported"});
}

TEST(SafetensorsReader, NothingThere) {
  const TemporaryDirectory directory;
  expect_error([&] { SafetensorsReader::open_file(directory.path() / "x"); }, {"/x"});
  expect_error([&] { SafetensorsReader::open_model(directory.path()); },
               {"neither model.safetensors nor model.safetensors.index.json"});
  write_text(directory.path() / "pytorch_model.bin", "");
  expect_error([&] { SafetensorsReader::open_model(directory.path()); }, {"save_pretrained"});
}

// A sharded model, one part of which is then corrupted.
class ShardedModel : public ::testing::Test {
 protected:
  ShardedModel() { write_safetensors_model(path(), tensors_, source_of(tensors_), 22); }
  const std::filesystem::path& path() const { return directory_.path(); }
  void change_index(const std::function<void(Json&)>& change) {
    Json index = read_json(path() / kIndex);
    change(index);
    write_text(path() / kIndex, index.dump());
  }
  void expect_refused(std::initializer_list<std::string> parts) {
    expect_error([&] { SafetensorsReader::open_model(path()); }, parts);
  }
  static constexpr const char* kIndex = "model.safetensors.index.json";
  static constexpr const char* kSecond = "model-00002-of-00002.safetensors";

 private:
  TemporaryDirectory directory_;
  std::vector<TensorToWrite> tensors_ = three_tensors();
};

TEST_F(ShardedModel, MissingShard) {
  std::filesystem::remove(path() / kSecond);
  expect_refused({kIndex, "shard", kSecond, "is missing"});
}

TEST_F(ShardedModel, TruncatedShard) {
  std::filesystem::resize_file(path() / kSecond, std::filesystem::file_size(path() / kSecond) - 1);
  expect_refused({kSecond, "not a valid safetensors file"});
}

TEST_F(ShardedModel, TensorThatIsInNoShard) {
  change_index([](Json& index) { index["weight_map"]["ghost"] = kSecond; });
  expect_refused({kIndex, "tensor ghost is listed in", kSecond});
}

TEST_F(ShardedModel, TensorListedInTheWrongShard) {
  change_index([](Json& index) { index["weight_map"]["half"] = kSecond; });
  expect_refused({kIndex, "tensor half is listed in", kSecond});
}

TEST_F(ShardedModel, TensorThatTheIndexDoesNotList) {
  change_index([](Json& index) { index["weight_map"].erase("wide"); });
  expect_refused({kIndex, "tensor wide", "is not listed"});
}

TEST_F(ShardedModel, TensorInTwoShards) {
  std::filesystem::copy_file(path() / kSecond, path() / "copy.safetensors");
  change_index([](Json& index) { index["weight_map"]["more"] = "copy.safetensors"; });
  expect_refused({"tensor last is in", "as well"});
}

TEST_F(ShardedModel, PathsThatEscape) {
  for (const char* name :
       {"../x.safetensors", "/etc/passwd", "sub/x.safetensors", "..", "", "a\\b"}) {
    change_index([&](Json& index) { index["weight_map"]["last"] = name; });
    expect_refused({kIndex, "weight_map.last", "not in the model directory"});
  }
}

TEST_F(ShardedModel, DamagedIndex) {
  change_index([](Json& index) { index["weight_map"]["last"] = 3; });
  expect_refused({kIndex, "weight_map.last is not a file name"});
  write_text(path() / kIndex, "{}");
  expect_refused({kIndex, "weight_map is missing"});
  write_text(path() / kIndex, R"({"weight_map":{}})");
  expect_refused({kIndex, "weight_map is empty"});
  write_text(path() / kIndex, "{");
  expect_refused({kIndex, "not valid JSON"});
}

}  // namespace
}  // namespace longstride
