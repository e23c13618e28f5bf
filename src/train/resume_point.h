// Where a run starts: from the beginning, or from a checkpoint.
#pragma once

#include <filesystem>
#include <optional>

#include "train/checkpoint.h"

namespace longstride {

struct ResumeChoice {
  bool resume = false;
  std::filesystem::path from = {};  // a step-N directory; empty: the newest intact one
};

struct ResumePoint {
  std::filesystem::path directory;
  TrainState state;
  bool named = false;  // the user chose it; there may be later ones
};

// The checkpoint that a run with its output in `root` resumes from, verified to the last byte;
// nothing for a new run. Damaged ones are skipped with a warning as long as one is intact. Throws
// Error if `root` is not a directory, holds checkpoints without being resumed, or has no intact
// one.
std::optional<ResumePoint> find_resume_point(const std::filesystem::path& root,
                                             const ResumeChoice& choice);

// Renames saves later than `state.step`, for a run that resumes from an earlier one.
void set_aside_later_saves(const std::filesystem::path& root, const ResumePoint& point);

}  // namespace longstride
