// OwnOutputs: which of the files found as text were, or will be, written by the run itself.
#pragma once

#include <filesystem>
#include <vector>

#include "data/corpus.h"

namespace longstride {

// Paths are compared as they are without symbolic links.
class OwnOutputs {
 public:
  explicit OwnOutputs(const RunOutputs& outputs);

  // Whether the file or directory, met below a directory of data, is an output. `canonical` has no
  // symbolic links.
  bool contains(const std::filesystem::path& canonical) const;
  // Whether what the user names is an output or lies within one.
  bool holds(const std::filesystem::path& named) const;

 private:
  bool is_step(const std::filesystem::path& canonical) const;

  std::vector<std::filesystem::path> paths_;
  std::filesystem::path checkpoints_;
};

}  // namespace longstride
