// Where a run begins: anew, or at a checkpoint.
#pragma once

#include <filesystem>
#include <optional>

#include "train/checkpoint.h"

namespace longstride {

struct ResumeChoice {
  bool resume = false;
  std::filesystem::path from = {};  // a step-N directory; empty: the newest that is whole
};

struct ResumePoint {
  std::filesystem::path directory;
  TrainState state;
  bool named = false;  // the user chose it; there may be later ones
};

// The checkpoint that a run with its output in `root` goes on from, verified to the last byte;
// nothing where the run begins. Broken ones are passed over with a warning as long as one is whole.
// Throws Error where `root` is no directory, holds checkpoints and is not to be resumed, or none of
// them is whole.
std::optional<ResumePoint> find_resume_point(const std::filesystem::path& root,
                                             const ResumeChoice& choice);

// Takes later saves than `state.step` out of the way of a run that goes on from an earlier one:
// they keep their contents under another name.
void set_aside_later_saves(const std::filesystem::path& root, const ResumePoint& point);

}  // namespace longstride
