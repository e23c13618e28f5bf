// Checkpoints: `step-N/`, a Hugging Face directory (with adapters, a PEFT directory) with a
// `state/` beside the weights. A save appears whole or not at all; a restore verifies every byte.
// The format is described in docs/checkpoint.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "model/adapter_config.h"
#include "model/model_directory.h"
#include "train/checkpoint_state.h"
#include "train/optimizer.h"
#include "train/save_snapshot.h"

namespace longstride {

class ShardedState;

// Everything that a save writes.
struct CheckpointContents {
  TrainState state;
  const ModelConfig& config;
  const CheckpointTensors& tensors;
  std::span<const SideFile> side_files;
  const AdapterConfig* adapter = nullptr;  // set: a PEFT directory is written, not a model
  ShardedState* shards = nullptr;  // of a process that has a part of a stage's state; as `tensors`
};

// Writes what a save has besides its state into the existing `directory`: a model, or with
// `adapter` a PEFT directory. Returns every file written.
std::vector<WrittenFile> write_weights(const std::filesystem::path& directory,
                                       const AdapterConfig* adapter, const ModelConfig& config,
                                       const CheckpointTensors& tensors,
                                       std::span<const SideFile> side_files);

// The pieces of a save, for several processes that write one (train/rank_save.h). They throw Error.
//
// Creates `directory`/state, whose parent must be there.
void make_state_directory(const std::filesystem::path& directory);
// Some tensors of the optimizer's state, by their indices, as a file there; its name is relative to
// `directory`.
WrittenFile write_optimizer_file(const std::filesystem::path& directory, const std::string& name,
                                 const TensorsToWrite& state,
                                 const std::vector<std::int64_t>& indices);
// The last file: state.json, with the size and checksum of every other one. Checks that they are
// still there.
void write_state_file(const std::filesystem::path& directory, const TrainState& state,
                      const std::vector<WrittenFile>& files);

// Writes `root`/step-N. Never changes earlier saves. Throws Error, also if the weights or the
// optimizer's state are not finite.
std::filesystem::path save_checkpoint(const std::filesystem::path& root,
                                      const CheckpointContents& contents);
// `root`/step-N.
std::filesystem::path checkpoint_path(const std::filesystem::path& root, std::int64_t step);
// Keeps the newest `keep` of the saves up to `step`; 0: all.
void remove_old_checkpoints(const std::filesystem::path& root, std::int64_t step,
                            std::int64_t keep);

// A step-N directory.
struct SavedStep {
  std::int64_t step = 0;
  std::filesystem::path directory;
};
// The checkpoints in `root`, the newest first, without leftovers of killed saves and empty
// directories.
std::vector<SavedStep> saved_checkpoints(const std::filesystem::path& root);
// The first of them, or nothing.
std::optional<std::filesystem::path> newest_checkpoint(const std::filesystem::path& root);
struct SavedSteps {
  std::int64_t count = 0, newest = 0;  // 0 if there is none
  std::int64_t unfinished_bytes = 0;   // of leftovers of killed saves
};
SavedSteps saved_steps(const std::filesystem::path& root);
// Removes leftovers of killed saves.
void remove_unfinished_saves(const std::filesystem::path& root);

// Reads and checks state/state.json and the size and checksum of every file it lists. Throws Error
// naming the file that is changed, truncated or missing.
TrainState read_checkpoint_state(const std::filesystem::path& directory);
// Loads moments and masters, regardless of where they were kept when saved; weights are loaded from
// the directory like any model's.
void load_optimizer(const std::filesystem::path& directory, const ParameterSet& weights,
                    Optimizer& optimizer);

}  // namespace longstride
