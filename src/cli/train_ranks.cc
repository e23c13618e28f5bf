#include "cli/train_ranks.h"

#include <algorithm>
#include <system_error>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "cli/failure.h"
#include "comm/control.h"
#include "comm/link_choice.h"
#include "train/checkpoint_state.h"

namespace longstride::cli {
namespace {

namespace fs = std::filesystem;

// Messages of a rank that are those of rank 0 too. Errors are told after it has ended.
class QuietRank {
 public:
  explicit QuietRank(bool quiet) : quiet_(quiet) {
    if (quiet_) set_log_sink([](std::string_view) {});
  }
  QuietRank(const QuietRank&) = delete;
  QuietRank& operator=(const QuietRank&) = delete;
  ~QuietRank() {
    if (quiet_) set_log_sink(nullptr);
  }

 private:
  bool quiet_;
};

void check_number(const TrainConfig& config, const comm::Launch& launch) {
  const std::int64_t groups = config.parallel.data, stages = config.parallel.pipeline,
                     heads = config.parallel.heads, each = stages * heads;
  if (!launch.several() && each > 1)
    throw Error(fmt::format("parallel.{} is {} and there is one process",
                            heads > 1 ? "heads" : "pipeline", heads > 1 ? heads : stages),
                fmt::format("start {} of them: mpirun -np {} --bind-to none longstride train ...",
                            each, each));
  if (!launch.several()) return;
  const std::int64_t pipelines = launch.size / each;
  if (pipelines * each == launch.size && pipelines > 0 && groups % pipelines == 0) return;
  if (groups == 1 && heads == 1)
    throw Error(fmt::format("{} has started {} processes and parallel.pipeline is {}",
                            launch.started_by, launch.size, stages),
                fmt::format("set parallel.pipeline to {}, or start {}", launch.size,
                            stages == 1 ? "one process without it" : std::to_string(stages)));
  std::string numbers;
  for (std::int64_t count = 1; count <= groups; ++count)
    if (groups % count == 0) numbers += fmt::format("{}{}", count == 1 ? "" : ", ", count * each);
  if (heads > 1)
    throw Error(fmt::format("{} has started {} processes, which do not fit parallel.pipeline = {}, "
                            "parallel.data = {} and parallel.heads = {}",
                            launch.started_by, launch.size, stages, groups, heads),
                fmt::format("start one of these numbers: {}", numbers));
  throw Error(
      fmt::format("{} has started {} processes, which do not fit parallel.pipeline = {} and "
                  "parallel.data = {}",
                  launch.started_by, launch.size, stages, groups),
      fmt::format("start one of these numbers: {}; or set parallel.pipeline to {}", numbers,
                  launch.size));
}

}  // namespace

int run_train(const std::function<TrainConfig()>& config, const TrainBody& body, bool only_plans) {
  const comm::Launch launch = comm::read_launch();
  const auto checked = [&] {
    TrainConfig read = config();
    if (!only_plans || launch.several()) check_number(read, launch);
    return read;
  };
  if (!launch.several()) return body(checked(), nullptr);
  std::optional<TrainConfig> read;
  std::exception_ptr failed;
  const auto try_it = [&] {
    try {
      read = checked();
    } catch (...) {
      failed = std::current_exception();
    }
  };
  {
    const QuietRank quiet(launch.rank != 0);
    try_it();
  }
  if (read && read->parallel.link != "mpi") comm::allow_many_streams();
  comm::LinkOptions options;
  if (read) options.timeout_seconds = read->parallel.timeout;
  const std::unique_ptr<comm::MessageLink> link = comm::open_group(launch, options);
  return run_on_ranks(*link, [&] {
    if (failed) std::rethrow_exception(failed);
    const QuietRank quiet(link->rank() != 0);
    return body(*read, link.get());
  });
}

RankDevice open_rank_device(const TrainConfig& config, const std::string& options,
                            comm::MessageLink* link) {
  if (link == nullptr) {
    if (config.device.threads > 0) set_thread_count(static_cast<int>(config.device.threads));
    return {make_device(config.device.name), {}};
  }
  // Before anything else is done by all of them.
  comm::check_same(*link,
                   {LONGSTRIDE_VERSION, config_to_toml(config) + options, config.device.name});
  const int here = link->local_size();
  set_thread_count(config.device.threads > 0 ? static_cast<int>(config.device.threads)
                                             : std::max(1, thread_count() / here));
  const int gpus = cuda_device_count();
  RankDevice rank{make_device(config.device.name, gpus > 0 ? link->local_rank() % gpus : 0), {}};
  rank.place = RankPlace::of_rank(link->rank(), link->size(), config.parallel.pipeline,
                                  config.parallel.heads);
  rank.place.on_host = here;
  if (gpus > 0) rank.place.on_device = (here + gpus - 1) / gpus;
  comm::check_same(*link, {LONGSTRIDE_VERSION, "", rank.device->name()});
  return rank;
}

TensorLink open_tensor_link(const TrainConfig& config, const RankDevice& rank,
                            comm::MessageLink* link) {
  const comm::LinkWish wish = comm::parse_link_wish(config.parallel.link);
  if (link == nullptr || wish == comm::LinkWish::kMpi) return {};
  comm::LinkProbe probe = comm::probe_nccl(*rank.device);
  const comm::LinkChoice choice = comm::agree_on_link(*link, wish, probe.facts);
  if (!choice.nccl) {
    log_info("tensors go through host memory: rank {} on {} {}", choice.rank,
             link->host(choice.rank), choice.why);
    return {};
  }
  log_info("tensors go between GPUs by NCCL {} ({})", probe.library->version_text(),
           probe.library->file());
  comm::NcclOptions options;
  options.lanes = comm::pipeline_lanes(static_cast<int>(rank.place.stages),
                                       static_cast<int>(rank.place.shards));
  // Where processes share heads, ranks are numbered otherwise.
  const auto rank_at = [&](int number) {
    const std::int64_t stages = rank.place.stages;
    return static_cast<int>(rank.place.rank_of(number / stages, number % stages));
  };
  for (auto& [from, to] : options.lanes) {
    from = rank_at(from);
    to = rank_at(to);
  }
  options.timeout_seconds = config.parallel.timeout;
  TensorLink made{std::move(probe.library), nullptr};
  made.link = std::make_unique<comm::NcclLink>(*made.library, comm::make_link_streams(*rank.device),
                                               *link, options);
  return made;
}

std::optional<ResumePoint> find_resume_point_together(const fs::path& root,
                                                      const ResumeChoice& choice,
                                                      comm::MessageLink* link) {
  if (link == nullptr) return find_resume_point(root, choice);
  std::optional<ResumePoint> point;
  if (link->rank() == 0) point = find_resume_point(root, choice);
  const fs::path found = comm::share_text(*link, 0, point ? point->directory.string() : "");
  if (link->rank() != 0 && !found.empty())
    point = {found, parse_state_text(read_text(found / kStateDirectory / kStateFile), found).state,
             !choice.from.empty()};
  return point;
}

void tell_allocated(std::int64_t planned, const Device& device, comm::MessageLink& link) {
  struct Bytes {
    std::int64_t planned = 0, allocated = 0;
  };
  const std::vector<Bytes> all = comm::gather<Bytes>(link, {planned, device.allocated_bytes()});
  bool same = true;
  for (int rank = 0; rank < link.size(); ++rank) {
    const Bytes& bytes = all[static_cast<std::size_t>(rank)];
    if (bytes.planned == bytes.allocated) continue;
    same = false;
    log_info("rank {} on {}: {} bytes planned, {} allocated", rank, link.host(rank), bytes.planned,
             bytes.allocated);
  }
  if (same) log_info("all {} ranks have allocated what was planned", link.size());
}

void check_all_see(const fs::path& directory, comm::MessageLink* link) {
  if (link == nullptr) return;
  // A directory that is gone afterwards; what a killed process leaves is removed like a save's.
  std::optional<DirectoryWriter> probe;
  if (link->rank() == 0) {
    make_writable_directory(directory);
    probe.emplace(directory / "ranks");
  }
  const fs::path made =
      comm::share_text(*link, 0, probe ? probe->path().filename().string() : std::string());
  std::error_code ignored;
  const int blind = fs::is_directory(directory / made, ignored) ? 0 : 1;
  const std::vector<int> all = comm::gather(*link, blind);
  const auto first = std::ranges::find(all, 1);
  if (first == all.end()) return;
  const int rank = static_cast<int>(first - all.begin());
  throw Error(fmt::format("checkpoint.directory {} is not the same for all: rank {} on {} does not "
                          "see what rank 0 on {} writes there",
                          directory.string(), rank, link->host(rank), link->host(0)),
              "name a directory on a file system that all hosts share");
}

}  // namespace longstride::cli
