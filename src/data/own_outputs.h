// OwnOutputs: recognizes text files that were, or will be, written by the run itself.
#pragma once

#include <filesystem>
#include <vector>

#include "data/corpus.h"

namespace longstride {

// Paths are compared after resolving symbolic links. Immutable after construction.
class OwnOutputs {
 public:
  explicit OwnOutputs(const RunOutputs& outputs);

  // True if the file or directory, found below a data directory, is an output. `canonical` has no
  // symbolic links.
  bool contains(const std::filesystem::path& canonical) const;
  // True if a path named by the user is an output or inside one.
  bool holds(const std::filesystem::path& named) const;

 private:
  bool is_step(const std::filesystem::path& canonical) const;

  std::vector<std::filesystem::path> paths_;
  std::filesystem::path checkpoints_;
};

}  // namespace longstride
