// Activations that leave the device: copied out by the forward pass and fetched by the chunk's
// backward pass, beside computing. A record is one kind of tensor of one (chunk, layer).
//
//   to host              | out 0 | out 1 ...          the memory of 0 is reused after layer 1
//   compute     | 0      | 1     | 2 ...
//
//   from host   | in 1   | in 0  |                    1 comes while the task before it runs
//   compute     | head   | 1     | 0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "model/activation_shapes.h"
#include "offload/offload_store.h"
#include "schedule/step_schedule.h"

namespace longstride {

// Where the records of each kind go: host memory first, then disk.
using ActivationCapacity = std::array<OffloadCapacity, kRetainedKinds>;

// Bytes for offloaded activations on each tier; kAll: no limit.
struct ActivationBudget {
  static constexpr std::int64_t kAll = -1;
  std::int64_t host = kAll, disk = 0;
  std::filesystem::path disk_directory = {};
};

struct ActivationSpread {
  ActivationCapacity capacity;
  std::int64_t host_bytes = 0, disk_bytes = 0;  // the buffers to the disk are host memory
};

// `saved` is by chunk, then layer. Throws Error if the budget is too small.
ActivationSpread spread_activations(const ActivationSizes& sizes, std::int64_t chunk_tokens,
                                    const std::vector<Retention>& saved,
                                    const ActivationBudget& budget);

// Not thread-safe: the thread that runs the step owns it.
class OffloadedActivations {
 public:
  // `saved` as above. Throws Error if host or disk have too little space.
  OffloadedActivations(Device& device, std::unique_ptr<Mover> mover, const ActivationSizes& sizes,
                       std::int64_t layers, std::int64_t chunk_tokens,
                       const std::vector<Retention>& saved, const ActivationCapacity& capacity);
  OffloadedActivations(const OffloadedActivations&) = delete;
  OffloadedActivations& operator=(const OffloadedActivations&) = delete;
  ~OffloadedActivations();

  // Begins a sequence, which fetches in the order of the schedule's tasks.
  void begin(const StepSchedule& schedule);

  // Whose tensors they are.
  struct Owner {
    std::int64_t chunk = 0, layer = 0, tokens = 0;
  };
  // Copies the tensors out once the work issued so far is done. Their memory must not be reused
  // before wait_saved.
  Fence save(const Owner& owner, Retention which, const LayerActivations& tensors);
  void wait_saved(Fence saved, const LayerActivations& tensors);
  // Fills the tensors, whose memory is free once the work issued so far is done. They may be used
  // after wait_fetched.
  Fence fetch(const Owner& owner, Retention which, const LayerActivations& tensors);
  void wait_fetched(Fence fetched, const LayerActivations& tensors);

  // Waits for copies in flight.
  void finish();
  MovedBytes moved() const;   // since construction
  OffloadTimes take_times();  // since the last call; complete after finish()

 private:
  template <class F>
  void for_records(const Owner& owner, Retention which, const LayerActivations& tensors,
                   const F& f);
  void read_ahead();
  void computing_on(const LayerActivations& tensors, bool writes);

  std::unique_ptr<Mover> mover_;
  ActivationSizes sizes_;
  std::int64_t layers_, chunk_tokens_;
  std::array<std::unique_ptr<OffloadStore>, kRetainedKinds> stores_;  // null: nothing of the kind
  // By kind, then chunk and layer; -1: not saved.
  std::array<std::vector<std::int64_t>, kRetainedKinds> places_;
  struct Record {
    std::size_t kind = 0;
    std::int64_t place = 0;
  };
  std::vector<Record> on_disk_;  // to be fetched, in order
  std::size_t ahead_ = 0;        // those before it have been read ahead
  DiskTimes disk_taken_;         // at the last take_times
};

}  // namespace longstride
