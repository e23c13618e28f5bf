#include "model/safetensors_header.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/json.h"

namespace longstride {
namespace {

constexpr std::int64_t kLengthBytes = 8;
constexpr std::int64_t kMostHeaderBytes = 100'000'000;  // the limit of the reference implementation
constexpr std::string_view kMetadata = "__metadata__";

struct FileType {
  std::string_view name;
  std::int64_t bits;
  std::optional<DType> dtype;
};

constexpr auto kTypes = std::to_array<FileType>({
    {"F32", 32, DType::kF32},
    {"F16", 16, DType::kF16},
    {"BF16", 16, DType::kBF16},
    {"F64", 64, DType::kF64},
    {"I32", 32, DType::kI32},
    {"I64", 64, DType::kI64},
    {"U8", 8, DType::kU8},
    {"BOOL", 8, {}},
    {"I8", 8, DType::kI8},
    {"I16", 16, {}},
    {"U16", 16, {}},
    {"U32", 32, {}},
    {"U64", 64, {}},
    {"C64", 64, {}},
    {"F8_E5M2", 8, {}},
    {"F8_E4M3", 8, {}},
    {"F8_E8M0", 8, {}},
    {"F8_E4M3FNUZ", 8, {}},
    {"F8_E5M2FNUZ", 8, {}},
    {"F6_E2M3", 6, {}},
    {"F6_E3M2", 6, {}},
    {"F4", 4, {}},
});

class HeaderParser {
 public:
  HeaderParser(std::span<const std::byte> file, const std::string& where)
      : file_(file), where_(where) {}

  SafetensorsHeader parse() {
    const Json json = parse_json_strictly(header_text());
    SafetensorsHeader header;
    for (const auto& [name, value] : json.items()) {
      if (name == kMetadata) {
        header.metadata = parse_metadata(value);
      } else {
        header.tensors.push_back(parse_tensor(name, value));
      }
    }
    std::ranges::sort(header.tensors, {},
                      [](const TensorInfo& t) { return std::pair(t.begin, t.bytes); });
    check_coverage(header.tensors);
    return header;
  }

 private:
  [[noreturn]] void fail(std::string_view problem) const {
    throw Error(fmt::format("{}: not a valid safetensors file: {}", where_, problem),
                "the file is damaged or was cut short; fetch or write it again");
  }
  [[noreturn]] void fail(std::string_view tensor, std::string_view problem) const {
    fail(fmt::format("tensor {}: {}", tensor, problem));
  }

  std::string_view header_text() {
    const auto size = static_cast<std::int64_t>(file_.size());
    if (size < kLengthBytes) fail(fmt::format("it has {} bytes, too few for a header", size));
    std::uint64_t length = 0;
    for (int i = kLengthBytes - 1; i >= 0; --i)
      length = (length << 8) | std::to_integer<std::uint64_t>(file_[static_cast<std::size_t>(i)]);
    if (length > static_cast<std::uint64_t>(size - kLengthBytes))
      fail(fmt::format("its header claims {} bytes, but the file has {}", length, size));
    if (length > static_cast<std::uint64_t>(kMostHeaderBytes))
      fail(fmt::format("its header claims {} bytes, more than the format's limit of {}", length,
                       kMostHeaderBytes));
    data_begin_ = kLengthBytes + static_cast<std::int64_t>(length);
    const std::string_view text(reinterpret_cast<const char*>(file_.data()) + kLengthBytes, length);
    if (!text.starts_with('{')) fail("its header does not begin with '{'");
    return text;
  }

  // Refuses what a plain parser would accept: duplicate keys, and nesting deeper than the format
  // allows.
  Json parse_json_strictly(std::string_view text) const {
    std::vector<std::set<std::string>> keys;
    const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
      if (depth > 3) fail("its header is nested too deeply");
      if (event == Json::parse_event_t::object_start) keys.emplace_back();
      if (event == Json::parse_event_t::object_end) keys.pop_back();
      if (event == Json::parse_event_t::key) {
        const auto& key = parsed.get_ref<const std::string&>();
        if (!keys.back().insert(key).second) fail(fmt::format("its header names {} twice", key));
      }
      return true;
    };
    try {
      return Json::parse(text.begin(), text.end(), watch);
    } catch (const Json::exception& e) {
      fail(fmt::format("its header is not JSON: {}", e.what()));
    }
  }

  std::map<std::string, std::string> parse_metadata(const Json& value) const {
    if (!value.is_object()) fail("__metadata__ is not an object");
    std::map<std::string, std::string> metadata;
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) fail(fmt::format("__metadata__.{} is not a text", key));
      metadata[key] = text.get<std::string>();
    }
    return metadata;
  }

  TensorInfo parse_tensor(const std::string& name, const Json& value) const {
    if (!value.is_object() || value.size() != 3 || !value.contains("dtype") ||
        !value.contains("shape") || !value.contains("data_offsets"))
      fail(name, "needs dtype, shape and data_offsets, and nothing else");
    TensorInfo info;
    info.name = name;
    const Json& type = value["dtype"];
    if (!type.is_string()) fail(name, "dtype is not a text");
    info.dtype_name = type.get<std::string>();
    const auto known =
        std::ranges::find(kTypes, std::string_view(info.dtype_name), &FileType::name);
    if (known == kTypes.end()) fail(name, fmt::format("unknown dtype {}", info.dtype_name));
    info.dtype = known->dtype;
    info.shape = parse_numbers(name, "shape", value["shape"]);
    const std::vector<std::int64_t> offsets =
        parse_numbers(name, "data_offsets", value["data_offsets"]);
    if (offsets.size() != 2)
      fail(name, fmt::format("data_offsets holds {} numbers, not 2", offsets.size()));
    const std::int64_t begin = offsets[0], end = offsets[1];
    const std::int64_t available = static_cast<std::int64_t>(file_.size()) - data_begin_;
    if (begin > end)
      fail(name, fmt::format("data_offsets [{}, {}] end before they begin", begin, end));
    if (end > available)
      fail(name, fmt::format("data_offsets [{}, {}] pass the end of the data, {}", begin, end,
                             available));
    info.begin = data_begin_ + begin;
    info.bytes = end - begin;
    check_size(info, known->bits);
    return info;
  }

  std::vector<std::int64_t> parse_numbers(const std::string& name, std::string_view field,
                                          const Json& list) const {
    if (!list.is_array()) fail(name, fmt::format("{} is not a list", field));
    std::vector<std::int64_t> numbers;
    for (const Json& n : list) {
      if (!n.is_number_unsigned() ||
          n.get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()})
        fail(name, fmt::format("{} holds something that is not a size", field));
      numbers.push_back(n.get<std::int64_t>());
    }
    return numbers;
  }

  void check_size(const TensorInfo& info, std::int64_t bits) const {
    std::int64_t total = bits;
    for (const std::int64_t d : info.shape)
      if (__builtin_mul_overflow(total, d, &total))
        fail(info.name, "its shape is too large for 64 bits");
    if (total % 8 != 0 || total / 8 != info.bytes)
      fail(info.name, fmt::format("its shape and dtype {} need {} bytes, but data_offsets give {}",
                                  info.dtype_name, total / 8, info.bytes));
  }

  void check_coverage(const std::vector<TensorInfo>& tensors) const {
    std::int64_t covered = data_begin_;
    for (const TensorInfo& t : tensors) {
      if (t.begin < covered) fail(t.name, "its bytes overlap those of another tensor");
      if (t.begin > covered)
        fail(t.name, fmt::format("{} bytes before it belong to no tensor", t.begin - covered));
      covered = t.begin + t.bytes;
    }
    const auto size = static_cast<std::int64_t>(file_.size());
    if (covered != size) fail(fmt::format("its last {} bytes belong to no tensor", size - covered));
  }

  std::span<const std::byte> file_;
  const std::string& where_;
  std::int64_t data_begin_ = 0;
};

}  // namespace

SafetensorsHeader parse_safetensors(std::span<const std::byte> file, const std::string& where) {
  return HeaderParser(file, where).parse();
}

}  // namespace longstride
