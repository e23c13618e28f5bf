// The state on the device; and where else it may be.
#include "train/optimizer_state.h"

#include <algorithm>

#include "train/sliced_state.h"

namespace longstride {
namespace {

class DeviceState final : public OptimizerState {
 public:
  DeviceState(Device& device, const ModelConfig& config, bool masters)
      : first_(device, config, DType::kF32, "first moments"),
        second_(device, config, DType::kF32, "second moments") {
    if (masters)
      masters_ = std::make_unique<ParameterSet>(device, config, DType::kF32, "master weights");
  }

  void start(const Visitor& fill) override { visit(fill); }

  void visit(const Visitor& change) override {
    for (std::int64_t i = 0; i < first_.size(); ++i) {
      const std::int64_t n = first_.view(i).elements();
      StateSegment segment{i, 0, n, first_.view(i).reshaped({n}), second_.view(i).reshaped({n}),
                           {}};
      if (masters_) segment.master = masters_->view(i).reshaped({n});
      change(segment);
    }
    first_.device().stream().synchronize();
  }

  void read(StatePart part, std::int64_t parameter, const Sink& sink) override {
    constexpr std::int64_t kPiece = std::int64_t{64} << 20;
    const View view = set(part).view(parameter);
    const auto* data = static_cast<const std::byte*>(view.data());
    std::vector<std::byte> piece;
    for (std::int64_t at = 0; at < view.bytes(); at += kPiece) {
      piece.resize(static_cast<std::size_t>(std::min(kPiece, view.bytes() - at)));
      first_.device().copy_to_host(piece.data(), data + at,
                                   static_cast<std::int64_t>(piece.size()));
      sink(piece);
    }
  }

  void load(const Source& source) override {
    for (const StatePart part :
         {StatePart::kFirstMoment, StatePart::kSecondMoment, StatePart::kMaster})
      for (std::int64_t i = 0; i < first_.size(); ++i) {
        if (part == StatePart::kMaster && !masters_) return;
        const View view = set(part).view(i);
        const std::span<const std::byte> bytes = source(part, i);
        LS_CHECK(std::ssize(bytes) == view.bytes(), "{} bytes for {}", bytes.size(), view.bytes());
        first_.device().copy_from_host(view.data(), bytes.data(), view.bytes());
      }
  }

  bool on_device() const override { return true; }
  void copy_out(StatePart part, std::int64_t parameter, std::int64_t offset,
                std::span<std::byte> to) override {
    const View view = set(part).view(parameter);
    LS_CHECK(offset + std::ssize(to) <= view.bytes(), "{}+{} of {} bytes", offset, to.size(),
             view.bytes());
    first_.device().copy_to_host(to.data(), static_cast<const std::byte*>(view.data()) + offset,
                                 std::ssize(to));
  }
  StateBytes bytes() const override {
    return {first_.bytes() + second_.bytes() + (masters_ ? masters_->bytes() : 0)};
  }

 private:
  ParameterSet& set(StatePart part) {
    LS_CHECK(part != StatePart::kMaster || masters_, "the weights are the masters");
    return part == StatePart::kFirstMoment    ? first_
           : part == StatePart::kSecondMoment ? second_
                                              : *masters_;
  }

  ParameterSet first_, second_;
  std::unique_ptr<ParameterSet> masters_;
};

}  // namespace

void OptimizerState::copy_out(StatePart, std::int64_t, std::int64_t, std::span<std::byte>) {
  LS_CHECK(on_device(), "the state is not on the device");
}

StateBytes optimizer_state_bytes(const ModelConfig& config, bool masters,
                                 const StateOptions& options) {
  if (options.place != StatePlace::kDevice) return sliced_state_bytes(config, masters, options);
  return {(masters ? 3 : 2) * ParameterSet::bytes_needed(config, DType::kF32)};
}

std::unique_ptr<OptimizerState> make_optimizer_state(Device& device, const ModelConfig& config,
                                                     bool masters, const StateOptions& options) {
  if (options.place != StatePlace::kDevice)
    return make_sliced_state(device, config, masters, options);
  return std::make_unique<DeviceState>(device, config, masters);
}

}  // namespace longstride
