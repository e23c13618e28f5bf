#include "train/save_room.h"

#include <sys/stat.h>

#include <algorithm>
#include <limits>

#include "base/log.h"
#include "base/sizes.h"
#include "train/checkpoint.h"
#include "train/optimizer.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

// The directory, or the nearest one above it that exists.
fs::path existing(const fs::path& directory) {
  std::error_code none;
  fs::path path = fs::absolute(directory, none).lexically_normal();
  while (!fs::exists(path, none) && path.has_relative_path()) path = path.parent_path();
  return path;
}

bool on_one_disk(const fs::path& a, const fs::path& b) {
  struct stat of_a {
  }, of_b{};
  return stat(a.c_str(), &of_a) == 0 && stat(b.c_str(), &of_b) == 0 && of_a.st_dev == of_b.st_dev;
}

}  // namespace

void plan_saves(RunPlan& plan) {
  const CheckpointConfig& checkpoint = plan.config.checkpoint;
  const std::int64_t steps = plan.config.training.steps;
  SaveNeeds& saves = plan.needs.saves;
  saves.bytes =
      plan.needs.weights + Optimizer::bytes_needed(plan.model.config, plan.model.dtypes, {}).device;

  // The oldest is removed when the new one is whole.
  const std::int64_t made =
      checkpoint.every > 0 ? (steps + checkpoint.every - 1) / checkpoint.every : 1;
  const std::int64_t at_once = checkpoint.keep > 0 ? std::min(made, checkpoint.keep + 1) : made;
  saves.more = std::max<std::int64_t>(1, at_once - count_checkpoints(checkpoint.directory));

  const fs::path disk = existing(checkpoint.directory);
  std::error_code error;
  const fs::space_info space = fs::space(disk, error);
  if (error) {  // what is wrong there is told when the directory is made
    saves.available = std::numeric_limits<std::int64_t>::max();
    return;
  }
  saves.available = static_cast<std::int64_t>(
      std::min<std::uintmax_t>(space.available, std::numeric_limits<std::int64_t>::max()));
  if (plan.needs.disk_total() > 0 && on_one_disk(disk, plan.config.memory.disk_path))
    saves.available = std::max<std::int64_t>(0, saves.available - plan.needs.disk_total());
  if (saves.bytes <= saves.available && saves.bytes * saves.more > saves.available)
    log_warning("{} has room for {} of {} saves of {} that the run will keep there at once{}",
                checkpoint.directory.string(), saves.available / saves.bytes, saves.more,
                format_bytes(static_cast<double>(saves.bytes)),
                checkpoint.keep == 0 ? " (checkpoint.keep = 2 would leave two of them)" : "");
}

}  // namespace longstride
