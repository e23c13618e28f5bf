#include "model/parameters.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace longstride {
namespace {

constexpr std::int64_t kAlignment = 256;

struct Layout {
  std::vector<std::int64_t> offsets;
  std::int64_t head_offset = -1;
  std::int64_t bytes = 0;
};

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

const ParameterSpec* apart(const std::vector<ParameterSpec>& specs) {
  const auto found = std::ranges::find_if(specs, &ParameterSpec::head_apart);
  return found == specs.end() ? nullptr : &*found;
}

Shape head_shape(const ParameterSpec& spec) {
  if (spec.tied_part != TiedPart::kLookup) return spec.shape;
  return {ParameterSet::arriving_rows(spec.shape), spec.shape[1]};
}

Layout lay_out(const std::vector<ParameterSpec>& specs, Holds holds) {
  Layout layout;
  for (const ParameterSpec& spec : specs) {
    const bool held = holds == Holds::kAll || spec.trainable;
    if (!spec.follows) layout.bytes = aligned(layout.bytes);
    layout.offsets.push_back(held ? layout.bytes : -1);
    if (held) layout.bytes += bytes_of(spec.dtype, spec.stored_shape());
  }
  layout.bytes = aligned(layout.bytes);
  if (const ParameterSpec* spec = apart(specs); spec != nullptr && holds == Holds::kGradients) {
    layout.head_offset = layout.bytes;
    layout.bytes = aligned(layout.bytes + bytes_of(DType::kF32, head_shape(*spec)));
  }
  return layout;
}

}  // namespace

ParameterSet::ParameterSet(Device& device, std::vector<ParameterSpec> specs,
                           const std::string& what, Holds holds)
    : device_(&device), specs_(std::move(specs)) {
  Layout layout = lay_out(specs_, holds);
  offsets_ = std::move(layout.offsets);
  head_offset_ = layout.head_offset;
  bytes_ = layout.bytes;
  memory_ = device.allocate(bytes_, what);
}

ParameterSet::ParameterSet(Device& device, const ModelConfig& config, DType dtype,
                           const std::string& what)
    : ParameterSet(device, parameter_specs(config, dtype), what) {}

ParameterSet ParameterSet::gradients(Device& device, const std::vector<ParameterSpec>& specs) {
  return {device, with_dtype(specs, DType::kF32), "gradients", Holds::kGradients};
}

std::int64_t ParameterSet::bytes_needed(const std::vector<ParameterSpec>& specs, Holds holds) {
  return lay_out(specs, holds).bytes;
}

std::int64_t ParameterSet::gradient_bytes_needed(const std::vector<ParameterSpec>& specs) {
  return bytes_needed(with_dtype(specs, DType::kF32), Holds::kGradients);
}

View ParameterSet::view(std::int64_t i) const {
  LS_CHECK(i >= 0 && i < size(), "parameter {} of {}", i, size());
  const auto at = static_cast<std::size_t>(i);
  if (offsets_[at] < 0) return {};
  std::byte* base = memory_->data();
  return {base == nullptr ? nullptr : base + offsets_[at], specs_[at].dtype,
          specs_[at].stored_shape()};
}

std::int64_t ParameterSet::arriving_rows(const Shape& shape_VD) {
  constexpr std::int64_t kBytes = std::int64_t{16} << 20;
  const std::int64_t row = bytes_of(DType::kF32, {shape_VD[1]});
  return std::min(shape_VD[0], std::max<std::int64_t>(1, kBytes / row));
}

View ParameterSet::head_gradient() const {
  if (head_offset_ < 0) return {};
  std::byte* base = memory_->data();
  return {base == nullptr ? nullptr : base + head_offset_, DType::kF32, head_shape(*apart(specs_))};
}

ModelParameters ParameterSet::model() const {
  ModelParameters model;
  std::int64_t layers = 0;
  for (const ParameterSpec& spec : specs_) layers = std::max(layers, spec.place.layer + 1);
  model.layers.resize(static_cast<std::size_t>(layers));
  for (std::int64_t i = 0; i < size(); ++i) {
    const ParameterPlace& place = specs_[static_cast<std::size_t>(i)].place;
    LS_CHECK(place.layer < 0 ? place.at_top != nullptr : place.in_layer != nullptr,
             "{} has no place in the model", specs_[static_cast<std::size_t>(i)].name);
    View& at = place.layer < 0
                   ? model.*place.at_top
                   : model.layers[static_cast<std::size_t>(place.layer)].*place.in_layer;
    at = view(i);
    if (place.is_head_too) model.head = at;
    if (const auto& adapter = specs_[static_cast<std::size_t>(i)].adapter; adapter) {
      LayerParameters& layer = model.layers[static_cast<std::size_t>(place.layer)];
      layer.adapter_scale = adapter->scale;
      layer.adapter_dropout = adapter->dropout;
    }
  }
  if (head_offset_ >= 0 && apart(specs_)->tied_part != TiedPart::kLookup)
    model.head = head_gradient();
  return model;
}

void ParameterSet::zero() { device_->zero(memory_->data(), bytes_); }

}  // namespace longstride
