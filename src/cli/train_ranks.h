// `train` in several processes: what they settle before the run.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "comm/launch.h"
#include "comm/nccl_link.h"
#include "device/device.h"
#include "train/config.h"
#include "train/resume_point.h"
#include "train/run_plan.h"

namespace longstride::cli {

// Runs `body` with the link between the processes that a launcher has started, or with null if it
// has started one. Messages of all but the first are dropped, errors are told once. Returns the
// exit status. `config` may throw; then `body` does. `only_plans`: its settings may be of processes
// that have not been started.
using TrainBody = std::function<int(const TrainConfig& config, comm::MessageLink* link)>;
int run_train(const std::function<TrainConfig()>& config, const TrainBody& body,
              bool only_plans = false);

// These do nothing but what one process does if the link is null.
//
// Throws Error if version, configuration, the command's options or devices differ, or the number of
// processes does not fit. Sets the number of threads, and returns this rank's device.
struct RankDevice {
  std::unique_ptr<Device> device;
  RankPlace place;
};
RankDevice open_rank_device(const TrainConfig& config, const std::string& options,
                            comm::MessageLink* link);
// The link that tensors take, as parallel.link says; logs which. Throws Error if it cannot be.
struct TensorLink {
  std::unique_ptr<comm::NcclLibrary> library;
  std::unique_ptr<comm::NcclLink> link;  // null: the link of the processes itself
};
TensorLink open_tensor_link(const TrainConfig& config, const RankDevice& rank,
                            comm::MessageLink* link);
// As find_resume_point; one rank verifies it for all.
std::optional<ResumePoint> find_resume_point_together(const std::filesystem::path& root,
                                                      const ResumeChoice& choice,
                                                      comm::MessageLink* link);
// At the end of a run, by all ranks: rank 0 logs whether each has allocated what was planned.
void tell_allocated(std::int64_t planned, const Device& device, comm::MessageLink& link);
// Throws Error that names the first rank that does not see what rank 0 writes there.
void check_all_see(const std::filesystem::path& directory, comm::MessageLink* link);

}  // namespace longstride::cli
