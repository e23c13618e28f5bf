#include "train/save_snapshot.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "base/error.h"

namespace longstride {
namespace {

// Unit in which the memory for copies is prepared and filled.
constexpr std::int64_t kUnit = std::int64_t{64} << 20;

std::vector<std::int64_t> starts_of(const std::vector<std::int64_t>& sizes, std::int64_t begin) {
  std::vector<std::int64_t> starts = {begin};
  for (const std::int64_t size : sizes) starts.push_back(starts.back() + size);
  return starts;
}

std::vector<std::int64_t> weight_sizes(const ParameterSet& weights) {
  std::vector<std::int64_t> sizes;
  sizes.resize(static_cast<std::size_t>(weights.size()));  // 0: not saved
  for (const FileTensor& file : file_tensors(weights.specs()))
    for (std::int64_t p = file.first; p < file.first + file.count; ++p)
      sizes[static_cast<std::size_t>(p)] = weights.view(p).bytes();
  return sizes;
}

std::vector<StateTensor> tensors_of(const ParameterSet& weights, const Optimizer& optimizer) {
  return state_tensors(weights.specs(), optimizer.state().columns());
}

std::vector<std::int64_t> state_sizes(const std::vector<StateTensor>& tensors) {
  std::vector<std::int64_t> sizes;
  for (const StateTensor& tensor : tensors) sizes.push_back(tensor.bytes());
  return sizes;
}

}  // namespace

CheckpointTensors tensors_in_place(const ParameterSet& weights, Optimizer& optimizer) {
  CheckpointTensors all{tensors_to_write(weights), {}};
  std::vector<StateTensor> tensors = tensors_of(weights, optimizer);
  for (const StateTensor& tensor : tensors) all.state.tensors.push_back(tensor.tensor);
  all.state.read = [&optimizer, tensors = std::move(tensors)](std::int64_t i,
                                                              const ByteSink& sink) {
    const StateTensor& tensor = tensors[static_cast<std::size_t>(i)];
    optimizer.state().read(tensor.column, tensor.parameter, sink);
  };
  return all;
}

std::optional<SnapshotPlan> plan_snapshot(const ParameterSet& weights, const Optimizer& optimizer,
                                          std::int64_t budget) {
  const bool weights_readable = weights.device().shares_host_memory(),
             state_readable = weights_readable || !optimizer.state().on_device();
  const std::int64_t weight_bytes = starts_of(weight_sizes(weights), 0).back(),
                     all = starts_of(state_sizes(tensors_of(weights, optimizer)), weight_bytes)
                               .back();
  if (all <= budget) return SnapshotPlan{true, true, all};
  // Copying only part of the tensors in host memory would not spare the next update its wait.
  SnapshotPlan plan{!weights_readable, !state_readable, 0};
  plan.bytes = (plan.weights ? weight_bytes : 0) + (plan.state ? all - weight_bytes : 0);
  if (plan.bytes > budget) return std::nullopt;
  return plan;
}

std::unique_ptr<Memory> SaveSnapshot::allocate(Device& device, const SnapshotPlan& plan) {
  if (plan.bytes == 0) return nullptr;
  return device.allocate_host(plan.bytes, kUnit, "the copy of what is saved");
}

SaveSnapshot::SaveSnapshot(const SnapshotPlan& plan, Memory* memory, const ParameterSet& weights,
                           Optimizer& optimizer)
    : plan_(plan), memory_(memory), tensors_(tensors_in_place(weights, optimizer)) {
  LS_CHECK(plan.bytes == 0 || (memory != nullptr && memory->bytes() >= plan.bytes),
           "no memory for {} bytes", plan.bytes);
  if (plan.weights) copy_weights(weights);
  if (plan.state) copy_state(weights, optimizer);
}

template <class F>
void SaveSnapshot::for_pieces(const Starts& starts, std::size_t i, const F& f) const {
  for (std::int64_t at = starts[i]; at < starts[i + 1];) {
    const std::int64_t end = std::min(starts[i + 1], (at / kUnit + 1) * kUnit);
    f(at - starts[i],
      std::span<std::byte>(memory_->data() + at, static_cast<std::size_t>(end - at)));
    at = end;
  }
}

void SaveSnapshot::read(const Starts& starts, std::int64_t i, const ByteSink& sink) const {
  for_pieces(starts, static_cast<std::size_t>(i),
             [&](std::int64_t, std::span<std::byte> piece) { sink(piece); });
}

void SaveSnapshot::copy_weights(const ParameterSet& weights) {
  weights_ = starts_of(weight_sizes(weights), 0);
  for (std::size_t i = 0; i + 1 < weights_.size(); ++i) {
    const View view = weights.view(static_cast<std::int64_t>(i));
    for_pieces(weights_, i, [&](std::int64_t offset, std::span<std::byte> to) {
      memory_->prepare(to.data() - memory_->data(), std::ssize(to));
      weights.device().copy_to_host(to.data(), static_cast<const std::byte*>(view.data()) + offset,
                                    std::ssize(to));
    });
  }
  tensors_.weights = tensors_to_write(weights, [this](std::int64_t i, std::int64_t offset,
                                                      std::int64_t bytes, const ByteSink& sink) {
    sink({memory_->data() + weights_[static_cast<std::size_t>(i)] + offset,
          static_cast<std::size_t>(bytes)});
  });
}

void SaveSnapshot::copy_state(const ParameterSet& weights, Optimizer& optimizer) {
  const std::vector<StateTensor> tensors = tensors_of(weights, optimizer);
  state_ = starts_of(state_sizes(tensors), plan_.weights ? weights_.back() : 0);
  OptimizerState& state = optimizer.state();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::int64_t column = tensors[i].column, parameter = tensors[i].parameter;
    for_pieces(state_, i, [&](std::int64_t offset, std::span<std::byte> to) {
      memory_->prepare(to.data() - memory_->data(), std::ssize(to));
      if (state.on_device()) state.copy_out(column, parameter, offset, to);
    });
    if (state.on_device()) continue;
    std::byte* to = memory_->data() + state_[i];
    state.read(column, parameter, [&](std::span<const std::byte> bytes) {
      LS_CHECK(to + bytes.size() <= memory_->data() + state_[i + 1], "tensor {}", i);
      std::memcpy(to, bytes.data(), bytes.size());
      to += bytes.size();
    });
  }
  tensors_.state.read = [this](std::int64_t i, const ByteSink& sink) { read(state_, i, sink); };
}

}  // namespace longstride
