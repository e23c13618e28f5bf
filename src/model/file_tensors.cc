#include "model/file_tensors.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/error.h"
#include "model/bitsandbytes_tensors.h"
#include "tensor/block_formats.h"

namespace longstride {
namespace {

// Copies from the device, in pieces.
ParameterBytes from_device(const ParameterSet& parameters) {
  return
      [&parameters](std::int64_t i, std::int64_t offset, std::int64_t bytes, const ByteSink& sink) {
        constexpr std::int64_t kStaging = std::int64_t{16} << 20;
        const auto* const from = static_cast<const std::byte*>(parameters.view(i).data()) + offset;
        std::vector<std::byte> staging;
        for (std::int64_t at = 0; at < bytes; at += kStaging) {
          const std::int64_t count = std::min(kStaging, bytes - at);
          staging.resize(static_cast<std::size_t>(count));
          parameters.device().copy_to_host(staging.data(), from + at, count);
          sink(staging);
        }
      };
}

// Bytes of parameters, one after the other, or bytes that do not depend on them.
struct Source {
  struct Part {
    std::int64_t parameter = 0, offset = 0, bytes = 0;
  };
  std::vector<Part> parts;
  std::vector<std::byte> constant = {};
};

// A quantized weight is several tensors.
void add_record(const ParameterSet& parameters, const FileTensor& tensor, TensorsToWrite& all,
                std::vector<Source>& sources) {
  const View view = parameters.view(tensor.first);
  LS_CHECK(tensor.count == 1, "{} is quantized and has {} parts", tensor.name, tensor.count);
  all.format = view.dtype();
  float offset = 0;
  if (view.dtype() == DType::kNf4)
    parameters.device().copy_to_host(&offset,
                                     static_cast<const std::byte*>(view.data()) +
                                         block_record(view.dtype(), tensor.shape).offset.offset,
                                     sizeof offset);
  // The other weights have the type that this one had.
  for (RecordTensor& part : record_tensors(tensor.name, view.dtype(), tensor.shape, offset,
                                           parameters.specs().front().dtype)) {
    all.tensors.push_back(std::move(part.tensor));
    sources.push_back({{{tensor.first, part.offset, part.bytes}}, std::move(part.constant)});
  }
}

}  // namespace

bool has_adapters(const std::vector<ParameterSpec>& specs) {
  return std::ranges::any_of(specs,
                             [](const ParameterSpec& spec) { return spec.adapter.has_value(); });
}

std::int64_t file_bytes(const std::vector<ParameterSpec>& specs) {
  std::int64_t bytes = 0;
  for (const FileTensor& tensor : file_tensors(specs))
    bytes += bytes_of(specs[static_cast<std::size_t>(tensor.first)].dtype, tensor.shape);
  return bytes;
}

std::vector<FileTensor> file_tensors(const std::vector<ParameterSpec>& specs) {
  const bool adapters = has_adapters(specs);
  const std::string prefix = adapters ? "base_model.model." : "";
  std::vector<FileTensor> tensors;
  std::int64_t rows = 0;  // of the last tensor that have come, if it is made of parts
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const ParameterSpec& spec = specs[i];
    const bool copy = spec.tied_part == TiedPart::kHeadCopy;
    if (spec.derived || copy || (adapters && !spec.trainable)) continue;
    const auto index = static_cast<std::int64_t>(i);
    if (!spec.part) {
      tensors.push_back({prefix + spec.name, spec.shape, index, 1});
      continue;
    }
    const FilePart& part = *spec.part;
    if (part.first == 0) {
      tensors.push_back({prefix + part.tensor, {part.of, spec.shape[1]}, index, 0});
      rows = 0;
    }
    LS_CHECK(!tensors.empty() && tensors.back().name == prefix + part.tensor &&
                 part.first == rows &&
                 spec.dtype == specs[static_cast<std::size_t>(tensors.back().first)].dtype,
             "{} is not the next part of {}", spec.name, part.tensor);
    ++tensors.back().count;
    rows += spec.shape[0];
    const bool last = i + 1 == specs.size() || specs[i + 1].file_name() != part.tensor;
    LS_CHECK(!last || rows == part.of, "{} of {} rows of {}", rows, part.of, part.tensor);
  }
  return tensors;
}

TensorsToWrite tensors_to_write(const ParameterSet& parameters, ParameterBytes copy) {
  TensorsToWrite all;
  std::vector<Source> sources;
  for (const FileTensor& tensor : file_tensors(parameters.specs())) {
    const View view = parameters.view(tensor.first);
    if (!view.present()) continue;
    if (is_block_format(view.dtype())) {
      add_record(parameters, tensor, all, sources);
      continue;
    }
    all.tensors.push_back({tensor.name, view.dtype(), tensor.shape});
    sources.emplace_back();
    for (std::int64_t p = tensor.first; p < tensor.first + tensor.count; ++p)
      sources.back().parts.push_back({p, 0, parameters.view(p).bytes()});
  }
  if (!copy) copy = from_device(parameters);
  all.read = [copy = std::move(copy), sources = std::move(sources)](std::int64_t i,
                                                                    const ByteSink& sink) {
    const Source& source = sources[static_cast<std::size_t>(i)];
    if (!source.constant.empty()) return sink(source.constant);
    for (const Source::Part& part : source.parts)
      copy(part.parameter, part.offset, part.bytes, sink);
  };
  return all;
}

}  // namespace longstride
