#include "train/sliced_state.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "train/slice_capacity.h"

namespace longstride {
namespace {

const WaitSite kInAfterOut{"optimizer/in-after-out"};        // from host: the slot's slice has left
const WaitSite kAccessAfterIn{"optimizer/access-after-in"};  // computing: the slice has come
const WaitSite kZeroAfterOut{"optimizer/zero-after-out"};    // computing: the slot's slice has left
const WaitSite kOutAfterAccess{"optimizer/out-after-access"};  // to host: the slice is computed

constexpr std::int64_t kSlots = 4;  // one arrives, one is updated, one leaves, one is spare

std::int64_t slots_for(const StateSlices& slices) { return std::min(kSlots, slices.size()); }

class SlicedState final : public OptimizerState {
 public:
  SlicedState(Device& device, StateSlices slices, const StateOptions& options)
      : OptimizerState(slices.columns),
        device_(device),
        cut_(std::move(slices)),
        slots_(
            device.allocate(slots_for(cut_) * cut_.slice_bytes, "slices of the optimizer's state")),
        mover_(device.make_mover()),
        capacity_(slice_capacity(cut_, options)),
        store_(device, mover_.get(), capacity_.records, capacity_.offload),
        left_(static_cast<std::size_t>(slots_for(cut_))) {}
  SlicedState(const SlicedState&) = delete;
  SlicedState& operator=(const SlicedState&) = delete;
  // After an error, work in flight on the lanes must end before the memory is freed.
  ~SlicedState() override { finish_whatever_comes(*mover_); }

  void start(const Visitor& fill) override { pass(fill, true); }
  void visit(const Visitor& change) override { pass(change, false); }

  void read(std::int64_t column, std::int64_t parameter, const Sink& sink) override {
    LS_CHECK(column >= 0 && column < std::ssize(cut_.columns), "column {} of {}", column,
             cut_.columns.size());
    const std::int64_t first = cut_.first_slice.at(static_cast<std::size_t>(parameter));
    LS_CHECK(first >= 0, "parameter {} is frozen", parameter);
    for (std::int64_t s = first; s < cut_.size() && cut_[s].pieces.front().parameter <= parameter;
         ++s)
      for (const StatePiece& piece : cut_[s].pieces)
        if (piece.parameter == parameter && piece.has(column))
          sink({store_.look_at(s) + cut_.offset(s, column, piece),
                static_cast<std::size_t>(cut_.column(column).bytes(piece.elements))});
  }

  // Slice by slice, so that each is written once.
  void load(const Source& source) override {
    store_.drop_read_ahead();
    for (std::int64_t s = 0; s < cut_.size(); ++s) {
      std::byte* const data = store_.begin_host_write(s);
      for (const StatePiece& piece : cut_[s].pieces)
        for (std::int64_t c = 0; c < std::ssize(cut_.columns); ++c) {
          if (!piece.has(c)) continue;
          const std::span<const std::byte> bytes = source(c, piece.parameter);
          const std::int64_t at = cut_.column(c).bytes(piece.first),
                             n = cut_.column(c).bytes(piece.elements);
          LS_CHECK(at + n <= std::ssize(bytes), "{} bytes of at least {}", bytes.size(), at + n);
          std::memcpy(data + cut_.offset(s, c, piece), bytes.data() + at,
                      static_cast<std::size_t>(n));
        }
      store_.end_host_write(s);
    }
  }

  StateBytes bytes() const override {
    return {slots_->bytes(), capacity_.host_bytes, capacity_.disk_bytes()};
  }

  OffloadTimes take_times() override {
    const DiskTimes now = store_.disk_times();
    const OffloadTimes times{mover_->take_times(), now.busy_s - taken_.busy_s,
                             now.waited_s - taken_.waited_s};
    taken_ = now;
    return times;
  }

 private:
  // `fresh`: slices start as zeros, regardless of stored values.
  void pass(const Visitor& f, bool fresh) {
    store_.drop_read_ahead();
    for (std::int64_t s = 0; s < cut_.size(); ++s) {
      Fence& left = left_[static_cast<std::size_t>(s) % left_.size()];
      std::byte* const device = slots_->data() + (&left - left_.data()) * cut_.slice_bytes;
      const OffloadPiece whole{0, cut_.bytes(s), device};
      if (fresh) {
        mover_->wait(Lane::kCompute, left, kZeroAfterOut);
        mover_->computing_on(device, whole.bytes, true);
        device_.zero(device, whole.bytes);
      } else {
        mover_->wait(Lane::kFromHost, left, kInAfterOut);
        store_.read_ahead_from(s);
        mover_->wait(Lane::kCompute, store_.read(s, {&whole, 1}), kAccessAfterIn);
        mover_->computing_on(device, whole.bytes, true);
      }
      for (const StatePiece& piece : cut_[s].pieces) f(segment(s, piece, device));
      mover_->wait(Lane::kToHost, mover_->fence(Lane::kCompute), kOutAfterAccess);
      left = store_.write(s, {&whole, 1});
    }
    mover_->finish();
  }

  StateSegment segment(std::int64_t slice, const StatePiece& piece, std::byte* device) const {
    StateSegment segment{
        .parameter = piece.parameter, .first = piece.first, .elements = piece.elements};
    for (std::int64_t c = 0; c < std::ssize(cut_.columns); ++c)
      if (piece.has(c))
        segment.columns[static_cast<std::size_t>(c)] =
            View(device + cut_.offset(slice, c, piece), cut_.column(c).dtype,
                 {cut_.column(c).values(piece.elements)});
    return segment;
  }

  Device& device_;
  StateSlices cut_;
  std::unique_ptr<Memory> slots_;
  std::unique_ptr<Mover> mover_;
  SliceCapacity capacity_;
  OffloadStore store_;
  std::vector<Fence> left_;  // of each slot's last copy out
  DiskTimes taken_;          // at the last take_times
};

}  // namespace

StateBytes sliced_state_bytes(const std::vector<ParameterSpec>& specs, const StateColumns& columns,
                              const StateOptions& options) {
  const StateSlices slices = cut_state(specs, columns, options.slice_elements);
  const SliceCapacity capacity = slice_capacity(slices, options);
  return {slots_for(slices) * slices.slice_bytes, capacity.host_bytes, capacity.disk_bytes()};
}

std::unique_ptr<OptimizerState> make_sliced_state(Device& device,
                                                  const std::vector<ParameterSpec>& specs,
                                                  const StateColumns& columns,
                                                  const StateOptions& options) {
  return std::make_unique<SlicedState>(device, cut_state(specs, columns, options.slice_elements),
                                       options);
}

}  // namespace longstride
