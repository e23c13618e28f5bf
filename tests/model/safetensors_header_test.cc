#include "model/safetensors_header.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "tests/model/fixtures.h"

namespace longstride {
namespace {

using testing::expect_error;
using testing::safetensors_bytes;

SafetensorsHeader parse(const std::string& file) {
  return parse_safetensors(std::as_bytes(std::span(file)), "x.safetensors");
}

// Refused with a message that names the file and contains `part`.
void expect_refused(const std::string& header, std::size_t data_bytes, const std::string& part) {
  expect_error([&] { parse(safetensors_bytes(header, std::string(data_bytes, 'x'))); },
               {"x.safetensors: not a valid safetensors file", part});
}

const char* const kValid =
    R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2,3],"data_offsets":[8,32]},)"
    R"("a":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]},"none":{"dtype":"F16","shape":[0,7],"data_offsets":[8,8]},)"
    R"("scalar":{"dtype":"F8_E4M3","shape":[],"data_offsets":[32,33]}}   )";

TEST(SafetensorsHeader, ReadsAValidFile) {
  const SafetensorsHeader header = parse(safetensors_bytes(kValid, std::string(33, 'x')));
  const std::int64_t data = 8 + static_cast<std::int64_t>(std::string(kValid).size());
  ASSERT_EQ(header.tensors.size(), 4u);
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_EQ(header.tensors[0].dtype, DType::kBF16);
  EXPECT_EQ(header.tensors[0].begin, data);
  EXPECT_EQ(header.tensors[1].name, "none");
  EXPECT_EQ(header.tensors[1].bytes, 0);
  EXPECT_EQ(header.tensors[2].shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(header.tensors[2].begin, data + 8);
  EXPECT_EQ(header.tensors[2].bytes, 24);
  EXPECT_EQ(header.tensors[3].dtype_name, "F8_E4M3");
  EXPECT_FALSE(header.tensors[3].dtype.has_value());
  EXPECT_EQ(header.metadata.at("format"), "pt");
}

TEST(SafetensorsHeader, EmptyModel) {
  EXPECT_TRUE(parse(safetensors_bytes("{}", "")).tensors.empty());
}

TEST(SafetensorsHeader, TooShortForALength) {
  expect_error([] { parse(""); }, {"x.safetensors", "0 bytes, too few"});
  expect_error([] { parse("1234567"); }, {"7 bytes, too few"});
}

TEST(SafetensorsHeader, HeaderOf2To60BytesAllocatesNothing) {
  std::string file = safetensors_bytes("{}", "");
  file[7] = 0x10;
  file[0] = 0;
  expect_error([&] { parse(file); },
               {"header claims 1152921504606846976 bytes, but the file has 10"});
  file = std::string(8, '\xff') + "{}";
  expect_error([&] { parse(file); }, {"header claims 18446744073709551615 bytes"});
}

TEST(SafetensorsHeader, HeaderLongerThanTheFile) {
  std::string file = safetensors_bytes("{}", "");
  file[0] = 3;
  expect_error([&] { parse(file); }, {"header claims 3 bytes, but the file has 10"});
}

TEST(SafetensorsHeader, HeaderAboveTheLimitOfTheFormat) {
  std::string file = safetensors_bytes("{}", std::string(100'000'010, ' '));
  file.replace(0, 8, safetensors_bytes(std::string(100'000'001, ' '), "").substr(0, 8));
  expect_error([&] { parse(file); }, {"more than the format's limit"});
}

TEST(SafetensorsHeader, HeaderIsNotAnObject) {
  expect_refused("[]", 0, "does not begin with '{'");
  expect_refused("", 0, "does not begin with '{'");
  expect_refused(" {}", 0, "does not begin with '{'");
}

TEST(SafetensorsHeader, HeaderIsNotJson) {
  expect_refused("{", 0, "not JSON");
  expect_refused("{} x", 0, "not JSON");
  expect_refused(std::string("{\"\xff\":1}"), 0, "not JSON");
}

TEST(SafetensorsHeader, DuplicateNames) {
  expect_refused(
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
      2, "names a twice");
  expect_refused(R"({"a":{"dtype":"U8","dtype":"F32","shape":[1],"data_offsets":[0,1]}})", 1,
                 "names dtype twice");
}

TEST(SafetensorsHeader, NestedTooDeeply) {
  expect_refused("{\"a\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}", 0,
                 "nested too deeply");
}

TEST(SafetensorsHeader, FieldsMissingOrTooMany) {
  expect_refused(R"({"a":3})", 0, "tensor a: needs dtype, shape and data_offsets");
  expect_refused(R"({"a":{"dtype":"U8","shape":[1]}})", 1, "tensor a: needs dtype");
  expect_refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"more":1}})", 1,
                 "nothing else");
}

TEST(SafetensorsHeader, UnknownDtype) {
  expect_refused(R"({"a":{"dtype":"F31","shape":[1],"data_offsets":[0,1]}})", 1,
                 "tensor a: unknown dtype F31");
  expect_refused(R"({"a":{"dtype":4,"shape":[1],"data_offsets":[0,1]}})", 1, "dtype is not a text");
}

TEST(SafetensorsHeader, SizesThatAreNone) {
  for (const char* shape :
       {"3", "[-1]", "[1.5]", "[\"1\"]", "[18446744073709551615]", "[1e3]", "[null]"})
    expect_refused(
        std::string(R"({"a":{"dtype":"U8","shape":)") + shape + R"(,"data_offsets":[0,1]}})", 1,
        "tensor a: shape");
  expect_refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", 1, "holds 1 numbers");
  expect_refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[-1,0]}})", 1,
                 "data_offsets holds something");
}

TEST(SafetensorsHeader, ShapeThatOverflows) {
  expect_refused(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
                 "too large for 64 bits");
  // 2^58 elements of 32 bits: 2^63 bits, which is 0 if it wraps.
  expect_refused(R"({"a":{"dtype":"F32","shape":[288230376151711744],"data_offsets":[0,0]}})", 0,
                 "too large for 64 bits");
}

TEST(SafetensorsHeader, OffsetsOutOfOrderOrOutside) {
  expect_refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", 1,
                 "end before they begin");
  expect_refused(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 1,
                 "pass the end of the data, 1");
}

TEST(SafetensorsHeader, SizeDoesNotMatchShape) {
  expect_refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4,
                 "dtype F32 need 8 bytes, but data_offsets give 4");
  expect_refused(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1,
                 "tensor a: its shape and dtype F4");
}

TEST(SafetensorsHeader, Overlap) {
  expect_refused(
      R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
      4, "tensor b: its bytes overlap");
}

TEST(SafetensorsHeader, Holes) {
  expect_refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})", 3,
                 "2 bytes before it belong to no tensor");
  expect_refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 3,
                 "last 2 bytes belong to no tensor");
}

TEST(SafetensorsHeader, Truncated) {
  const std::string file = safetensors_bytes(kValid, std::string(33, 'x'));
  for (std::size_t n = 0; n < file.size(); ++n)
    expect_error([&] { parse(file.substr(0, n)); }, {"x.safetensors"});
}

TEST(SafetensorsHeader, BadMetadata) {
  expect_refused(R"({"__metadata__":3})", 0, "__metadata__ is not an object");
  expect_refused(R"({"__metadata__":{"a":3}})", 0, "__metadata__.a is not a text");
}

// Bytes changed, dropped, duplicated and truncated in a valid file: the result is an Error or
// tensors within the file.
TEST(SafetensorsHeader, SurvivesMutations) {
  const std::string valid = safetensors_bytes(kValid, std::string(33, 'x'));
  const std::string interesting = "0123456789[]{},:\"-.eFnul \\\xff";
  Random random(2024);
  const auto pick = [&](std::size_t n) { return static_cast<std::size_t>(random.below(n)); };
  int accepted = 0;
  for (int round = 0; round < 40'000; ++round) {
    std::string file = valid;
    for (std::size_t changes = 1 + pick(4); changes > 0 && !file.empty(); --changes) {
      const std::size_t at = pick(file.size());
      switch (pick(6)) {
        case 0:
          file[at] = static_cast<char>(random.next_u32() & 0xff);
          break;
        case 1:
          file[at] = interesting[pick(interesting.size())];
          break;
        case 2:
          file.erase(at, 1 + pick(8));
          break;
        case 3:
          file.insert(at, file.substr(pick(file.size()), pick(16)));
          break;
        case 4:
          file.resize(at);
          break;
        default:
          file[pick(std::min<std::size_t>(8, file.size()))] =
              static_cast<char>(random.next_u32() & 0xff);
      }
    }
    try {
      for (const TensorInfo& t : parse(file).tensors) {
        ASSERT_GE(t.begin, 8);
        ASSERT_GE(t.bytes, 0);
        ASSERT_LE(t.begin + t.bytes, static_cast<std::int64_t>(file.size()));
      }
      ++accepted;
    } catch (const Error&) {
    }
  }
  // Changed names and data leave a file valid; some files must pass for the test to mean anything.
  EXPECT_GT(accepted, 100);
}

}  // namespace
}  // namespace longstride
