// Writes checkpoints on a background thread while the next steps run. One at a time.
//
//   step N | snapshot | step N+1: forward, backward | [wait, if not all was copied] update | ...
//          save thread: | write, sync, rename |
//
// In several processes each has such a thread, for its own files (train/rank_save.h). Threads that
// run the steps begin a save together, ask at the end of every step whether all have written, and
// end it together: only they use the link.
//
// Not thread-safe: only the thread that runs the steps may call its functions.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "comm/message_link.h"
#include "train/checkpoint.h"
#include "train/rank_save.h"

namespace longstride {

struct SaveJob {
  std::filesystem::path root;
  TrainState state;
};

// How a save ended.
struct SaveOutcome {
  std::int64_t step = 0;
  std::filesystem::path path;  // of the checkpoint
  std::exception_ptr error;    // null: success
};

// Of the whole model. What it refers to must outlive the saves.
struct SavedModel {
  const ModelConfig& config;
  std::span<const SideFile> side_files = {};
  const AdapterConfig* adapter = nullptr;
  const std::vector<ParameterSpec>& parameters;
};

class BackgroundSave {
 public:
  // `link`: to the other processes of the run, which call the same functions in the same order,
  // except for poll, under_way and wait_before_update; null: there are none.
  explicit BackgroundSave(const SavedModel& model, comm::MessageLink* link = nullptr)
      : model_(model), link_(link) {}
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;
  // Waits for a save in progress; in several processes it is given up.
  ~BackgroundSave();

  // Requires that no save is in progress. `failed`: there is no snapshot, for this reason; the
  // outcome tells it.
  void start(SaveJob job, std::unique_ptr<SaveSnapshot> snapshot,
             const std::exception_ptr& failed = nullptr);
  // True until an outcome has been returned.
  bool under_way() const { return under_way_; }
  // The outcome of a save that has ended; nothing if there is none or it is still in progress, and
  // always in several processes.
  std::optional<SaveOutcome> poll();
  // The same at the end of a step, where several processes can tell each other.
  std::optional<SaveOutcome> poll_together();
  // The same, but waits for the save to end.
  std::optional<SaveOutcome> wait();
  // Returns when weights and optimizer state may change.
  void wait_before_update();

  // Writes on the calling thread. `shards`: as in CheckpointContents.
  SaveOutcome save_now(const SaveJob& job, const CheckpointTensors& tensors,
                       ShardedState* shards = nullptr) const;

 private:
  CheckpointContents contents(const TrainState& state, const CheckpointTensors& tensors) const;
  void run(const std::function<void()>& write);
  void join();
  SaveOutcome end();

  const SavedModel model_;
  comm::MessageLink* const link_;
  bool under_way_ = false;
  std::unique_ptr<SaveSnapshot> snapshot_;
  std::optional<RankSave> together_;
  SaveOutcome outcome_;
  std::atomic<bool> done_{false}, given_up_{false};
  std::atomic<std::int64_t> pieces_{0};  // written
  std::thread thread_;
};

}  // namespace longstride
