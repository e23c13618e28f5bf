#include "train/host_state.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace longstride {
namespace {

constexpr std::int64_t kSlots = 4;       // one comes, one is worked on, one leaves, one to spare
constexpr std::int64_t kAlignment = 64;  // elements: 256 bytes of fp32
constexpr std::int64_t kElement = size_of(DType::kF32);
constexpr std::int64_t kLargestSlice = std::int64_t{4} << 20, kFewestSlices = 16;

std::int64_t aligned(std::int64_t elements) {
  return (elements + kAlignment - 1) / kAlignment * kAlignment;
}

// Elements of one parameter in a slice.
struct Piece {
  std::int64_t parameter = 0, first = 0, elements = 0;
  std::int64_t at = 0;  // in the slice
};

struct Slice {
  std::int64_t offset = 0;    // in host memory, bytes
  std::int64_t elements = 0;  // gaps between parameters included
  std::vector<Piece> pieces;
};

struct Slices {
  std::vector<Slice> slices;
  std::vector<std::int64_t> first_slice;  // of each parameter
  std::int64_t parts = 0, host_bytes = 0, slot_bytes = 0, slots = 0;

  // Of one part of a slice, and of all.
  static std::int64_t part_bytes(const Slice& slice) { return slice.elements * kElement; }
  std::int64_t bytes(const Slice& slice) const { return parts * part_bytes(slice); }
};

Slices cut(const ModelConfig& config, bool masters, std::int64_t slice_elements) {
  const std::vector<ParameterSpec> specs = parameter_specs(config);
  if (slice_elements == 0) {
    std::int64_t all = 0;
    for (const ParameterSpec& spec : specs) all += aligned(spec.shape.elements());
    slice_elements = std::min(kLargestSlice, aligned((all + kFewestSlices - 1) / kFewestSlices));
  }
  LS_CHECK(slice_elements > 0 && slice_elements % kAlignment == 0, "slices of {} elements",
           slice_elements);
  Slices cut;
  cut.parts = masters ? 3 : 2;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const std::int64_t elements = specs[i].shape.elements();
    for (std::int64_t first = 0; first < elements;) {
      if (cut.slices.empty() || cut.slices.back().elements == slice_elements)
        cut.slices.emplace_back();
      Slice& slice = cut.slices.back();
      if (first == 0) cut.first_slice.push_back(std::ssize(cut.slices) - 1);
      const std::int64_t n = std::min(elements - first, slice_elements - slice.elements);
      slice.pieces.push_back({static_cast<std::int64_t>(i), first, n, slice.elements});
      slice.elements += aligned(n);
      first += n;
    }
  }
  for (Slice& slice : cut.slices) {
    slice.offset = cut.host_bytes;
    cut.host_bytes += cut.bytes(slice);
    cut.slot_bytes = std::max(cut.slot_bytes, cut.bytes(slice));
  }
  cut.slots = std::min(kSlots, std::ssize(cut.slices));
  return cut;
}

class HostState final : public OptimizerState {
 public:
  HostState(Device& device, Slices slices)
      : device_(device),
        cut_(std::move(slices)),
        slots_(device.allocate(cut_.slots * cut_.slot_bytes, "slices of the optimizer's state")),
        host_(device.allocate_host(cut_.host_bytes, cut_.slot_bytes, "the optimizer's state")),
        mover_(device.make_mover()),
        left_(static_cast<std::size_t>(cut_.slots)) {}

  void start(const Visitor& fill) override { pass(fill, true); }
  void visit(const Visitor& change) override { pass(change, false); }

  void read(StatePart part, std::int64_t parameter, const Sink& sink) override {
    for_pieces(part, parameter, [&](const Piece& piece, std::byte* data) {
      sink({data, static_cast<std::size_t>(piece.elements * kElement)});
    });
  }

  void write(StatePart part, std::int64_t parameter, std::span<const std::byte> bytes) override {
    std::int64_t written = 0;
    for_pieces(part, parameter, [&](const Piece& piece, std::byte* data) {
      const std::int64_t n = piece.elements * kElement;
      LS_CHECK(written + n <= std::ssize(bytes), "{} bytes for more than that", bytes.size());
      std::memcpy(data, bytes.data() + written, static_cast<std::size_t>(n));
      written += n;
    });
    LS_CHECK(written == std::ssize(bytes), "{} bytes for {}", bytes.size(), written);
  }

  StateBytes bytes() const override { return {slots_->bytes(), host_->bytes()}; }
  MoveTimes take_times() override { return mover_->take_times(); }

 private:
  // `fresh`: slices begin as zeros, whatever host memory holds.
  void pass(const Visitor& f, bool fresh) {
    for (std::size_t s = 0; s < cut_.slices.size(); ++s) {
      const Slice& slice = cut_.slices[s];
      const std::size_t slot = s % left_.size();
      std::byte* const device = slots_->data() + static_cast<std::int64_t>(slot) * cut_.slot_bytes;
      std::byte* const host = host_->data() + slice.offset;
      const std::int64_t bytes = cut_.bytes(slice);
      if (fresh) {
        host_->prepare(slice.offset, bytes);
        mover_->wait(Lane::kCompute, left_[slot], WaitSite::kOptimizerZeroAfterOut);
        mover_->computing_on(device, bytes, true);
        device_.zero(device, bytes);
      } else {
        mover_->wait(Lane::kFromHost, left_[slot], WaitSite::kOptimizerInAfterOut);
        const Mover::Copy in{device, host, bytes};
        mover_->copy(Lane::kFromHost, {&in, 1});
        mover_->wait(Lane::kCompute, mover_->mark(Lane::kFromHost), WaitSite::kOptimizerUseAfterIn);
        mover_->computing_on(device, bytes, true);
      }
      for (const Piece& piece : slice.pieces) f(segment(slice, piece, device));
      mover_->wait(Lane::kToHost, mover_->mark(Lane::kCompute), WaitSite::kOptimizerOutAfterUse);
      const Mover::Copy out{host, device, bytes};
      mover_->copy(Lane::kToHost, {&out, 1});
      left_[slot] = mover_->mark(Lane::kToHost);
    }
    mover_->finish();
  }

  StateSegment segment(const Slice& slice, const Piece& piece, std::byte* device) const {
    const auto view = [&](std::int64_t part) {
      return View(device + part * Slices::part_bytes(slice) + piece.at * kElement, DType::kF32,
                  {piece.elements});
    };
    return {piece.parameter, piece.first, piece.elements,
            view(0),         view(1),     cut_.parts == 3 ? view(2) : View()};
  }

  // f(piece, its bytes in host memory) for all pieces of a parameter, in order.
  template <class F>
  void for_pieces(StatePart part, std::int64_t parameter, const F& f) {
    LS_CHECK(static_cast<std::int64_t>(part) < cut_.parts, "the weights are the masters");
    for (auto s =
             static_cast<std::size_t>(cut_.first_slice.at(static_cast<std::size_t>(parameter)));
         s < cut_.slices.size() && cut_.slices[s].pieces.front().parameter <= parameter; ++s) {
      const Slice& slice = cut_.slices[s];
      for (const Piece& piece : slice.pieces)
        if (piece.parameter == parameter)
          f(piece, host_->data() + slice.offset +
                       static_cast<std::int64_t>(part) * Slices::part_bytes(slice) +
                       piece.at * kElement);
    }
  }

  Device& device_;
  Slices cut_;
  std::unique_ptr<Memory> slots_, host_;
  std::unique_ptr<Mover> mover_;  // after the memory: what it still does ends first
  std::vector<Mark> left_;        // of each slot: its last copy out
};

}  // namespace

StateBytes host_state_bytes(const ModelConfig& config, bool masters, const StateOptions& options) {
  const Slices slices = cut(config, masters, options.slice_elements);
  return {slices.slots * slices.slot_bytes, slices.host_bytes};
}

std::unique_ptr<OptimizerState> make_host_state(Device& device, const ModelConfig& config,
                                                bool masters, const StateOptions& options) {
  return std::make_unique<HostState>(device, cut(config, masters, options.slice_elements));
}

}  // namespace longstride
