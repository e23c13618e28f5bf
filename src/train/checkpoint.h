// Checkpoints: `step-N/`, a Hugging Face directory with a `state/` beside the weights. A save
// appears whole or not at all; a restore verifies every byte. The format is described in
// docs/checkpoint.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "model/model_directory.h"
#include "train/checkpoint_state.h"
#include "train/optimizer.h"
#include "train/save_snapshot.h"

namespace longstride {

// Everything that a save writes.
struct CheckpointContents {
  TrainState state;
  const ModelConfig& config;
  const CheckpointTensors& tensors;
  std::span<const SideFile> side_files;
};

// Writes `root`/step-N. Earlier saves stay as they are, whatever happens. Throws Error, also where
// the weights or the optimizer's state are not finite.
std::filesystem::path save_checkpoint(const std::filesystem::path& root,
                                      const CheckpointContents& contents);
// Of the saves up to `step`, leaves the newest `keep`; 0: all.
void remove_old_checkpoints(const std::filesystem::path& root, std::int64_t step,
                            std::int64_t keep);

// A step-N directory.
struct SavedStep {
  std::int64_t step = 0;
  std::filesystem::path directory;
};
// Those in `root`, the newest first. Leftovers of killed saves and empty directories are no
// checkpoints.
std::vector<SavedStep> saved_checkpoints(const std::filesystem::path& root);
// The first of them, or nothing.
std::optional<std::filesystem::path> newest_checkpoint(const std::filesystem::path& root);
struct SavedSteps {
  std::int64_t count = 0, newest = 0;  // 0 where there is none
  std::int64_t unfinished_bytes = 0;   // of what killed saves left behind
};
SavedSteps saved_steps(const std::filesystem::path& root);
// Removes what a killed save left behind.
void remove_unfinished_saves(const std::filesystem::path& root);

// Reads and checks state/state.json and the size and checksum of every file it lists. Throws Error
// naming what was changed, cut short or lost.
TrainState read_checkpoint_state(const std::filesystem::path& directory);
// Loads moments and masters, wherever they were when they were saved; weights come from the
// directory like any model's.
void load_optimizer(const std::filesystem::path& directory, const ParameterSet& weights,
                    Optimizer& optimizer);

}  // namespace longstride
