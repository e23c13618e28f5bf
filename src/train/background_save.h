// Writes checkpoints on a background thread while the next steps run. One at a time.
//
//   step N | snapshot | step N+1: forward, backward | [wait, if not all was copied] update | ...
//          save thread: | write, sync, rename |
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

#include "train/checkpoint.h"

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

class BackgroundSave {
 public:
  // Config, side files and adapter must outlive it.
  BackgroundSave(const ModelConfig& config, std::span<const SideFile> side_files,
                 const AdapterConfig* adapter = nullptr)
      : config_(config), side_files_(side_files), adapter_(adapter) {}
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;
  // Waits for a save in progress.
  ~BackgroundSave();

  // Requires that no save is in progress.
  void start(SaveJob job, std::unique_ptr<SaveSnapshot> snapshot);
  // True until poll() or wait() has returned the outcome.
  bool under_way() const { return snapshot_ != nullptr; }
  // The outcome of a save that has ended; nothing if there is none or it is still in progress.
  std::optional<SaveOutcome> poll();
  // The same, but waits for the save to end.
  std::optional<SaveOutcome> wait();
  // Returns when weights and optimizer state may change.
  void wait_before_update();

  // Writes on the calling thread.
  SaveOutcome save_now(const SaveJob& job, const CheckpointTensors& tensors) const;

 private:
  void join();

  const ModelConfig& config_;
  std::span<const SideFile> side_files_;
  const AdapterConfig* adapter_;
  std::unique_ptr<SaveSnapshot> snapshot_;
  SaveOutcome outcome_;
  std::atomic<bool> done_{false};
  std::thread thread_;
};

}  // namespace longstride
