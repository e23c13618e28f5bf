// The state on the device, and the choice between it and the offloaded one.
#include "train/optimizer_state.h"

#include <algorithm>

#include "train/sliced_state.h"

namespace longstride {
namespace {

class DeviceState final : public OptimizerState {
 public:
  DeviceState(Device& device, const std::vector<ParameterSpec>& specs, const StateColumns& columns)
      : OptimizerState(columns), device_(device), specs_(specs) {
    for (const StateColumn& column : columns)
      sets_.emplace_back(device, column_specs(specs, column), column.what, Holds::kTrainable);
  }

  void start(const Visitor& fill) override { visit(fill); }

  void visit(const Visitor& change) override {
    for (std::size_t i = 0; i < specs_.size(); ++i) {
      if (!specs_[i].trainable) continue;
      StateSegment segment{.parameter = static_cast<std::int64_t>(i),
                           .first = 0,
                           .elements = specs_[i].shape.elements()};
      for (std::size_t c = 0; c < sets_.size(); ++c) {
        const View view = sets_[c].view(segment.parameter);
        if (view.present()) segment.columns[c] = view.reshaped({view.elements()});
      }
      change(segment);
    }
    device_.stream().synchronize();
  }

  void read(std::int64_t column, std::int64_t parameter, const Sink& sink) override {
    constexpr std::int64_t kPiece = std::int64_t{64} << 20;
    const View view = view_of(column, parameter);
    const auto* data = static_cast<const std::byte*>(view.data());
    std::vector<std::byte> piece;
    for (std::int64_t at = 0; at < view.bytes(); at += kPiece) {
      piece.resize(static_cast<std::size_t>(std::min(kPiece, view.bytes() - at)));
      device_.copy_to_host(piece.data(), data + at, static_cast<std::int64_t>(piece.size()));
      sink(piece);
    }
  }

  void load(const Source& source) override {
    for (std::int64_t c = 0; c < std::ssize(sets_); ++c)
      for (std::int64_t i = 0; i < std::ssize(specs_); ++i) {
        if (!sets_[static_cast<std::size_t>(c)].view(i).present()) continue;
        const View view = view_of(c, i);
        const std::span<const std::byte> bytes = source(c, i);
        LS_CHECK(std::ssize(bytes) == view.bytes(), "{} bytes for {}", bytes.size(), view.bytes());
        device_.copy_from_host(view.data(), bytes.data(), view.bytes());
      }
  }

  bool on_device() const override { return true; }
  void copy_out(std::int64_t column, std::int64_t parameter, std::int64_t offset,
                std::span<std::byte> to) override {
    const View view = view_of(column, parameter);
    LS_CHECK(offset + std::ssize(to) <= view.bytes(), "{}+{} of {} bytes", offset, to.size(),
             view.bytes());
    device_.copy_to_host(to.data(), static_cast<const std::byte*>(view.data()) + offset,
                         std::ssize(to));
  }
  StateBytes bytes() const override {
    StateBytes all;
    for (const ParameterSet& set : sets_) all.device += set.bytes();
    return all;
  }

 private:
  View view_of(std::int64_t column, std::int64_t parameter) const {
    LS_CHECK(column >= 0 && column < std::ssize(sets_), "column {} of {}", column, sets_.size());
    const View view = sets_[static_cast<std::size_t>(column)].view(parameter);
    LS_CHECK(view.present(), "{} has no column {}",
             specs_[static_cast<std::size_t>(parameter)].name, column);
    return view;
  }

  Device& device_;
  std::vector<ParameterSpec> specs_;
  std::vector<ParameterSet> sets_;  // one for each column
};

}  // namespace

OptimizerState::OptimizerState(StateColumns columns) : columns_(std::move(columns)) {
  LS_CHECK(columns_.size() <= StateSegment::kMaxColumns, "{} columns", columns_.size());
}

void OptimizerState::copy_out(std::int64_t, std::int64_t, std::int64_t, std::span<std::byte>) {
  LS_CHECK(on_device(), "the state is not on the device");
}

namespace {

// A process may have no trained parameter: a stage whose layers are frozen, or a shard of few.
bool is_sliced(const std::vector<ParameterSpec>& specs, const StateOptions& options) {
  return options.place != StatePlace::kDevice &&
         std::ranges::any_of(specs, &ParameterSpec::trainable);
}

}  // namespace

StateBytes optimizer_state_bytes(const std::vector<ParameterSpec>& specs,
                                 const StateColumns& columns, const StateOptions& options) {
  if (is_sliced(specs, options)) return sliced_state_bytes(specs, columns, options);
  StateBytes bytes;
  for (const StateColumn& column : columns)
    bytes.device += ParameterSet::bytes_needed(column_specs(specs, column), Holds::kTrainable);
  return bytes;
}

std::unique_ptr<OptimizerState> make_optimizer_state(Device& device,
                                                     const std::vector<ParameterSpec>& specs,
                                                     const StateColumns& columns,
                                                     const StateOptions& options) {
  if (is_sliced(specs, options)) return make_sliced_state(device, specs, columns, options);
  return std::make_unique<DeviceState>(device, specs, columns);
}

}  // namespace longstride
