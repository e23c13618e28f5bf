// Writes checkpoints on a thread of its own while the next steps run. One at a time.
//
//   step N | snapshot | step N+1: forward, backward | [wait, if not all was copied] update | ...
//          save thread: | write, sync, rename |
//
// All functions are for the thread that runs the steps.
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
  std::exception_ptr error;    // null: all is well
};

class BackgroundSave {
 public:
  // Config and side files outlive it.
  BackgroundSave(const ModelConfig& config, std::span<const SideFile> side_files)
      : config_(config), side_files_(side_files) {}
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;
  // Waits for a save that is under way.
  ~BackgroundSave();

  // None may be under way.
  void start(SaveJob job, std::unique_ptr<SaveSnapshot> snapshot);
  // Until poll() or wait() has given its outcome.
  bool under_way() const { return snapshot_ != nullptr; }
  // The outcome of the save that was under way; nothing where there is none, or it goes on.
  std::optional<SaveOutcome> poll();
  // The same, once it has ended.
  std::optional<SaveOutcome> wait();
  // Returns when weights and optimizer state may change.
  void wait_before_update();

  // Writes at once, by the calling thread.
  SaveOutcome save_now(const SaveJob& job, const CheckpointTensors& tensors) const;

 private:
  void join();

  const ModelConfig& config_;
  std::span<const SideFile> side_files_;
  std::unique_ptr<SaveSnapshot> snapshot_;
  SaveOutcome outcome_;
  std::atomic<bool> done_{false};
  std::thread thread_;
};

}  // namespace longstride
