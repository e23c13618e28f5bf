#include "data/own_outputs.h"

#include <algorithm>
#include <system_error>

namespace longstride {
namespace {

namespace fs = std::filesystem;

// Canonical form of a path that may not exist yet.
fs::path canonical_of(const fs::path& path) {
  std::error_code error;
  fs::path found = fs::weakly_canonical(fs::absolute(path), error);
  if (error || found.empty()) found = fs::absolute(path).lexically_normal();
  return found.has_filename() ? found : found.parent_path();  // "out/" means "out"
}

}  // namespace

OwnOutputs::OwnOutputs(const RunOutputs& outputs) {
  for (const auto* list : {&outputs.directories, &outputs.files})
    for (const fs::path& path : *list)
      if (!path.empty()) paths_.push_back(canonical_of(path));
  if (!outputs.checkpoints.empty()) checkpoints_ = canonical_of(outputs.checkpoints);
}

bool OwnOutputs::is_step(const fs::path& canonical) const {
  const std::string name = canonical.filename().string();
  return !checkpoints_.empty() && canonical.parent_path() == checkpoints_ &&
         name.starts_with("step-") && name.size() > 5 &&
         name.find_first_not_of("0123456789", 5) == std::string::npos;
}

bool OwnOutputs::contains(const fs::path& canonical) const {
  return is_step(canonical) || std::ranges::find(paths_, canonical) != paths_.end();
}

bool OwnOutputs::holds(const fs::path& named) const {
  // A directory of outputs may hold data too, if the user names them; a step directory may not.
  for (fs::path path = canonical_of(named); path.has_relative_path(); path = path.parent_path())
    if (is_step(path)) return true;
  std::error_code ignored;
  return !fs::is_directory(named, ignored) && contains(canonical_of(named));
}

}  // namespace longstride
