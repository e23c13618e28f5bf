#include "train/save_room.h"

#include <sys/stat.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "base/log.h"
#include "base/sizes.h"
#include "model/file_tensors.h"
#include "train/checkpoint.h"
#include "train/optimizer.h"
#include "train/output_check.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

bool on_one_disk(const fs::path& a, const fs::path& b) {
  const auto disk_of = [](const fs::path& path) {
    struct stat status = {};
    return stat(path.c_str(), &status) == 0 ? std::optional(status.st_dev) : std::nullopt;
  };
  const auto disk = disk_of(a);
  return disk && disk == disk_of(b);
}

}  // namespace

void plan_saves(RunPlan& plan) {
  const CheckpointConfig& checkpoint = plan.config.checkpoint;
  const std::int64_t steps = plan.config.training.steps;
  SaveNeeds& saves = plan.needs.saves;
  saves.bytes = (plan.model.adapter ? file_bytes(plan.model.specs)
                                    : ParameterSet::bytes_needed(plan.model.specs)) +
                Optimizer::bytes_needed(plan.model.specs, plan.config.optimizer, {}).device;

  // The oldest is removed when the new one is complete.
  const std::int64_t every = checkpoint.every, keep = checkpoint.keep;
  const SavedSteps saved = saved_steps(checkpoint.directory);
  const std::int64_t left = saved.newest >= steps ? 0
                            : every > 0 ? (steps + every - 1) / every - saved.newest / every
                                        : 1;
  saves.more =
      left == 0 || keep == 0
          ? left
          : std::max<std::int64_t>(1, std::min(saved.count + left, keep + 1) - saved.count);

  const fs::path disk = nearest_existing(checkpoint.directory);
  std::error_code error;
  const fs::space_info space = fs::space(disk, error);
  if (error) return;  // the error is reported when the directory is created
  constexpr std::uintmax_t kMost = std::numeric_limits<std::int64_t>::max() / 2;
  std::int64_t available = static_cast<std::int64_t>(std::min(space.available, kMost)) +
                           saved.unfinished_bytes;  // they are removed first
  if (plan.needs.disk_total() > 0 && on_one_disk(disk, plan.config.memory.disk_path))
    available = std::max<std::int64_t>(0, available - plan.needs.disk_total());
  saves.available = available;
  const std::int64_t fit = available / std::max<std::int64_t>(1, saves.bytes);
  if (fit >= 1 && saves.more > fit)
    log_warning("{} has room for {} of {} saves of {} that the run will keep there at once{}",
                checkpoint.directory.string(), fit, saves.more,
                format_bytes(static_cast<double>(saves.bytes)),
                keep == 0 ? " (checkpoint.keep = 2 would leave two of them)" : "");
}

}  // namespace longstride
