// Checkpoints: `step-N/`, a Hugging Face directory with a `state/` beside the weights. A save
// appears whole or not at all; a restore verifies every byte. The format is described in
// docs/checkpoint.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "model/model_directory.h"
#include "train/checkpoint_state.h"
#include "train/optimizer.h"

namespace longstride {

// Writes `root`/step-N. Earlier saves stay as they are, whatever happens; `keep` > 0 then removes
// all but the newest.
std::filesystem::path save_checkpoint(const std::filesystem::path& root, const TrainState& state,
                                      const ModelConfig& config, const ParameterSet& weights,
                                      Optimizer& optimizer,
                                      const std::optional<std::filesystem::path>& source,
                                      std::int64_t keep);

// The step-N directory with the largest N, or nothing. Leftovers of killed saves are not
// checkpoints.
std::optional<std::filesystem::path> newest_checkpoint(const std::filesystem::path& root);
struct SavedSteps {
  std::int64_t count = 0, newest = 0;  // 0 where there is none
  std::int64_t unfinished_bytes = 0;   // of what killed saves left behind
};
SavedSteps saved_steps(const std::filesystem::path& root);
// The one a run in `root` goes on from; nothing where it begins. Throws Error where there is one
// and the run is not to `resume`, or `root` is no directory.
std::optional<std::filesystem::path> checkpoint_to_resume(const std::filesystem::path& root,
                                                          bool resume);
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
