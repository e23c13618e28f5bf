#include "model/bitsandbytes_tensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "base/error.h"
#include "model/host_values.h"
#include "tensor/block_formats.h"
#include "tensor/dynamic_code.h"

namespace longstride {
namespace {

constexpr const char* kState = ".quant_state.bitsandbytes__";
constexpr const char* kUnsupported =
    "longstride reads NF4 in blocks of 64 and int8 by rows; quantize the original model again, by "
    "model.quantize for instance";

// "model.layers.0.mlp.up_proj.weight" and "SCB" give "model.layers.0.mlp.up_proj.SCB".
std::string beside(const std::string& name, const char* what) {
  return name.substr(0, name.size() - std::string_view("weight").size()) + what;
}

std::string_view torch_word(DType dtype) {
  return dtype == DType::kBF16 ? "bfloat16" : dtype == DType::kF16 ? "float16" : "float32";
}

[[noreturn]] void refuse(const SafetensorsReader& reader, const std::string& name,
                         const std::string& problem) {
  throw Error(fmt::format("{}: tensor {} {}", reader.file_of(name).string(), name, problem),
              kUnsupported);
}

void check_part(const SafetensorsReader& reader, const std::string& name, DType dtype,
                const std::vector<std::int64_t>& shape) {
  const TensorInfo& info = reader.info(name);  // throws if there is none
  if (info.dtype != dtype || info.shape != shape)
    refuse(reader, name,
           fmt::format("is {} [{}], but the quantized weight needs {} [{}]", info.dtype_name,
                       fmt::join(info.shape, ", "), name_of(dtype), fmt::join(shape, ", ")));
}

template <std::size_t N>
void check_table(const SafetensorsReader& reader, const std::string& name,
                 const std::array<float, N>& table) {
  check_part(reader, name, DType::kF32, {static_cast<std::int64_t>(N)});
  if (!std::ranges::equal(reader.bytes(name), std::as_bytes(std::span(table))))
    refuse(reader, name, "is another table than bitsandbytes' own");
}

Json read_state(const SafetensorsReader& reader, const std::string& name) {
  const std::string state = name + kState + "nf4";
  const std::span<const std::byte> bytes = reader.bytes(state);
  const auto* const text = reinterpret_cast<const char*>(bytes.data());
  Json json = Json::parse(text, text + bytes.size(), nullptr, false);
  if (!json.is_object()) refuse(reader, state, "does not hold a JSON object");
  return json;
}

void check_state(const SafetensorsReader& reader, const std::string& name, DType format,
                 const Shape& shape) {
  const Json json = read_state(reader, name);
  const auto expect = [&](const char* key, const Json& value) {
    if (!json.contains(key) || json.at(key) != value)
      refuse(
          reader, name + kState + "nf4",
          fmt::format("has {} {}, not {}", key,
                      json.contains(key) ? dump_json(json.at(key)) : "missing", dump_json(value)));
  };
  expect("quant_type", "nf4");
  expect("blocksize", kNf4Block);
  expect("shape", Json::array({shape[0], shape[1]}));
  if (format != DType::kNf4) return;
  expect("nested_blocksize", kNestedBlock);
  expect("nested_dtype", "float32");
  if (!json.contains("nested_offset") || !json.at("nested_offset").is_number() ||
      !std::isfinite(json.at("nested_offset").get<float>()))
    refuse(reader, name + kState + "nf4", "has no finite nested_offset");
}

std::vector<std::byte> bytes_of_text(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

template <std::size_t N>
std::vector<std::byte> bytes_of_table(const std::array<float, N>& table) {
  const auto bytes = std::as_bytes(std::span(table));
  return {bytes.begin(), bytes.end()};
}

}  // namespace

std::optional<DType> quantized_format(const SafetensorsReader& reader, const std::string& name) {
  if (reader.contains(name + kState + "fp4")) refuse(reader, name, "is quantized as FP4");
  if (reader.contains(name + kState + "nf4"))
    return reader.contains(name + ".nested_absmax") ? DType::kNf4 : DType::kNf4Wide;
  if (name.ends_with(".weight") && reader.contains(beside(name, "SCB"))) return DType::kInt8Rows;
  return std::nullopt;
}

std::vector<std::string> companions(const std::string& name, DType format) {
  if (format == DType::kInt8Rows) return {beside(name, "SCB"), beside(name, "weight_format")};
  std::vector<std::string> names = {name + ".absmax", name + ".quant_map", name + kState + "nf4"};
  if (format == DType::kNf4) {
    names.push_back(name + ".nested_absmax");
    names.push_back(name + ".nested_quant_map");
  }
  return names;
}

void check_quantized(const SafetensorsReader& reader, const std::string& name, DType format,
                     const Shape& shape) {
  if (format == DType::kInt8Rows) {
    check_part(reader, name, DType::kI8, {shape[0], shape[1]});
    check_part(reader, beside(name, "SCB"), DType::kF32, {shape[0]});
    const std::string order = beside(name, "weight_format");
    if (!reader.contains(order)) return;  // older files lack it
    check_part(reader, order, DType::kU8, {});
    if (reader.bytes(order)[0] != std::byte{0}) refuse(reader, order, "is not 0, by rows");
    return;
  }
  const std::int64_t n = shape.elements(), blocks = (n + kNf4Block - 1) / kNf4Block;
  check_state(reader, name, format, shape);
  check_part(reader, name, DType::kU8, {(n + 1) / 2, 1});
  check_table(reader, name + ".quant_map", kNf4Table);
  check_part(reader, name + ".absmax", format == DType::kNf4 ? DType::kU8 : DType::kF32, {blocks});
  if (format != DType::kNf4) return;
  check_part(reader, name + ".nested_absmax", DType::kF32,
             {(blocks + kNestedBlock - 1) / kNestedBlock});
  check_table(reader, name + ".nested_quant_map", kDynamicMap);
}

std::vector<std::byte> read_record(const SafetensorsReader& reader, const std::string& name,
                                   DType format, const Shape& shape) {
  const BlockRecord parts = block_record(format, shape);
  std::vector<std::byte> record(static_cast<std::size_t>(parts.bytes));
  const auto put = [&](const BlockRecord::Part& part, const std::string& tensor, bool floats) {
    const std::span<const std::byte> bytes = reader.bytes(tensor);
    LS_CHECK(std::ssize(bytes) == part.bytes, "{}: {} bytes, not {}", tensor, bytes.size(),
             part.bytes);
    if (const std::int64_t bad =
            floats ? first_nonfinite(bytes.data(), DType::kF32, part.bytes / size_of(DType::kF32))
                   : -1;
        bad >= 0)
      throw Error(fmt::format("{}: tensor {} holds a value that is not finite at index {}",
                              reader.file_of(tensor).string(), tensor, bad),
                  "the weights are broken; quantize the original model again");
    std::memcpy(record.data() + part.offset, bytes.data(), bytes.size());
  };
  put(parts.codes, name, false);
  if (format == DType::kInt8Rows) {
    put(parts.scales, beside(name, "SCB"), true);
    return record;
  }
  put(parts.scales, name + ".absmax", format == DType::kNf4Wide);
  if (format == DType::kNf4Wide) return record;
  put(parts.nested, name + ".nested_absmax", true);
  const float offset = read_state(reader, name).at("nested_offset").get<float>();
  std::memcpy(record.data() + parts.offset.offset, &offset, sizeof offset);
  return record;
}

std::vector<RecordTensor> record_tensors(const std::string& name, DType format, const Shape& shape,
                                         float nested_offset, DType dtype) {
  const BlockRecord parts = block_record(format, shape);
  std::vector<RecordTensor> tensors;
  const auto part = [&](std::string tensor, DType type, Shape s, const BlockRecord::Part& p) {
    tensors.push_back({{std::move(tensor), type, s}, p.offset, p.bytes});
  };
  const auto constant = [&](std::string tensor, DType type, Shape s, std::vector<std::byte> bytes) {
    tensors.push_back({{std::move(tensor), type, s}, 0, 0, std::move(bytes)});
  };
  if (format == DType::kInt8Rows) {
    part(name, DType::kI8, shape, parts.codes);
    part(beside(name, "SCB"), DType::kF32, {shape[0]}, parts.scales);
    constant(beside(name, "weight_format"), DType::kU8, {}, {std::byte{0}});
    return tensors;
  }
  OrderedJson state = {{"quant_type", "nf4"},
                       {"blocksize", kNf4Block},
                       {"dtype", torch_word(dtype)},
                       {"shape", {shape[0], shape[1]}}};
  const std::int64_t blocks = (shape.elements() + kNf4Block - 1) / kNf4Block;
  part(name, DType::kU8, {parts.codes.bytes, 1}, parts.codes);
  part(name + ".absmax", format == DType::kNf4 ? DType::kU8 : DType::kF32, {blocks}, parts.scales);
  constant(name + ".quant_map", DType::kF32, {16}, bytes_of_table(kNf4Table));
  if (format == DType::kNf4) {
    part(name + ".nested_absmax", DType::kF32, {parts.nested.bytes / size_of(DType::kF32)},
         parts.nested);
    constant(name + ".nested_quant_map", DType::kF32, {256}, bytes_of_table(kDynamicMap));
    state["nested_blocksize"] = kNestedBlock;
    state["nested_dtype"] = "float32";
    state["nested_offset"] = static_cast<double>(nested_offset);
  }
  const std::string text = dump_json(state);
  constant(name + kState + "nf4", DType::kU8, {std::ssize(text)}, bytes_of_text(text));
  return tensors;
}

Json quantization_json(DType format, DType dtype) {
  const bool int8 = format == DType::kInt8Rows;
  Json json = {{"quant_method", "bitsandbytes"}, {"load_in_8bit", int8}, {"load_in_4bit", !int8}};
  if (int8) return json;
  json["bnb_4bit_quant_type"] = "nf4";
  json["bnb_4bit_use_double_quant"] = format == DType::kNf4;
  json["bnb_4bit_compute_dtype"] = torch_word(dtype);
  json["bnb_4bit_quant_storage"] = "uint8";
  return json;
}

}  // namespace longstride
