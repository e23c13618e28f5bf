#include "model/file_tensors.h"

#include <algorithm>
#include <span>

#include "base/error.h"

namespace longstride {
namespace {

void read_view(const ParameterSet& parameters, std::int64_t i, const ByteSink& sink) {
  constexpr std::int64_t kStaging = std::int64_t{16} << 20;
  const View view = parameters.view(i);
  std::vector<std::byte> staging;
  for (std::int64_t at = 0; at < view.bytes(); at += kStaging) {
    const std::int64_t count = std::min(kStaging, view.bytes() - at);
    staging.resize(static_cast<std::size_t>(count));
    parameters.device().copy_to_host(staging.data(),
                                     static_cast<const std::byte*>(view.data()) + at, count);
    sink(staging);
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
    bytes += tensor.shape.elements() * size_of(specs[static_cast<std::size_t>(tensor.first)].dtype);
  return bytes;
}

std::vector<FileTensor> file_tensors(const std::vector<ParameterSpec>& specs) {
  const bool adapters = has_adapters(specs);
  const std::string prefix = adapters ? "base_model.model." : "";
  std::vector<FileTensor> tensors;
  std::int64_t rows = 0;  // of the last tensor that have come, if it is made of parts
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const ParameterSpec& spec = specs[i];
    if (spec.derived || (adapters && !spec.trainable)) continue;
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

TensorsToWrite tensors_to_write(const ParameterSet& parameters) {
  std::vector<FileTensor> held;
  TensorsToWrite all;
  for (const FileTensor& tensor : file_tensors(parameters.specs())) {
    if (!parameters.view(tensor.first).present()) continue;
    all.tensors.push_back({tensor.name, parameters.view(tensor.first).dtype(), tensor.shape});
    held.push_back(tensor);
  }
  all.read = [&parameters, held = std::move(held)](std::int64_t i, const ByteSink& sink) {
    const FileTensor& tensor = held[static_cast<std::size_t>(i)];
    for (std::int64_t p = tensor.first; p < tensor.first + tensor.count; ++p)
      read_view(parameters, p, sink);
  };
  return all;
}

}  // namespace longstride
