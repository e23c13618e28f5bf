#include "train/resume_point.h"

#include <algorithm>
#include <system_error>

#include "base/error.h"
#include "base/log.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

bool inside(const fs::path& directory, const fs::path& root) {
  std::error_code none;
  return fs::equivalent(fs::absolute(directory / "..", none), root, none);
}

ResumePoint named_point(const fs::path& root, const fs::path& from) {
  std::error_code none;
  if (!fs::is_directory(from, none))
    throw Error(fmt::format("--resume={}: no such directory", from.string()),
                "name a step-N directory, or write --resume alone for the newest one");
  if (!fs::exists(from / "state" / "state.json", none)) {
    if (const auto newest = newest_checkpoint(from))
      throw Error(fmt::format("--resume={}: this is a directory of checkpoints", from.string()),
                  fmt::format("name one of them, for example {}", newest->string()));
  } else if (!inside(from, root) && !saved_checkpoints(root).empty()) {
    throw Error(
        fmt::format("{} already holds {}, and {} is not one of its checkpoints", root.string(),
                    newest_checkpoint(root)->filename().string(), from.string()),
        "choose another checkpoint.directory for a run that goes on from there");
  }
  return {from, read_checkpoint_state(from), true};
}

}  // namespace

std::optional<ResumePoint> find_resume_point(const fs::path& root, const ResumeChoice& choice) {
  std::error_code none;
  if (fs::exists(root, none) && !fs::is_directory(root, none))
    throw Error(fmt::format("{} is no directory", root.string()),
                "choose another checkpoint.directory");
  if (!choice.from.empty()) return named_point(root, choice.from);
  const std::vector<SavedStep> saved = saved_checkpoints(root);
  if (saved.empty()) return std::nullopt;
  if (!choice.resume)
    throw Error(fmt::format("{} already holds {}", root.string(),
                            saved.front().directory.filename().string()),
                "add --resume to go on from it, or choose another checkpoint.directory");
  std::vector<Error> broken;
  for (const SavedStep& step : saved) {
    try {
      ResumePoint point{step.directory, read_checkpoint_state(step.directory), false};
      for (const Error& e : broken) log_warning("{}; it is passed over", e.what());
      return point;
    } catch (const Error& e) {
      broken.push_back(e);
    }
  }
  throw Error(broken.front());
}

void set_aside_later_saves(const fs::path& root, const ResumePoint& point) {
  for (const SavedStep& saved : saved_checkpoints(root)) {
    if (saved.step <= point.state.step) continue;
    fs::path aside = saved.directory.string() + ".superseded";
    std::error_code failed;
    for (int i = 2; fs::exists(aside, failed); ++i)
      aside = fmt::format("{}.superseded-{}", saved.directory.string(), i);
    fs::rename(saved.directory, aside, failed);
    if (failed)
      throw Error(fmt::format("cannot rename {}: {}", saved.directory.string(), failed.message()),
                  fmt::format("it is later than {}: move it away", point.directory.string()));
    log_info("{} is later than {} and is kept as {}", saved.directory.string(),
             point.directory.string(), aside.filename().string());
  }
}

}  // namespace longstride
