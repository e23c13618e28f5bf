#include "train/run_ranks.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "model/tied_head.h"

namespace longstride {
namespace {

// A rank may be this many chunks (or pairs of them) of each stage ahead of another before it waits
// for its vote.
constexpr int kVoteLag = 4;

std::int64_t message_bytes(const RunPlan& plan) {
  const NumericsRecord& numerics = plan.part.numerics;
  return std::min(numerics.chunk_tokens, plan.config.training.context) *
         plan.part.config.hidden_size * size_of(numerics.compute);
}

}  // namespace

std::int64_t RunRanks::host_bytes(const RunPlan& plan) {
  if (!plan.place.several()) return 0;
  return LinkedStages::host_bytes(message_bytes(plan)) +
         TiedStages::host_bytes(plan.part.parameters);
}

std::vector<RunRanks::Run> RunRanks::runs_of(const RunPlan& plan) {
  const std::vector<ParameterSpec>& all = plan.model.specs;
  struct Owner {
    int rank = -1;
    std::int64_t at = 0;
  };
  std::vector<Owner> owners(all.size());
  for (int rank = 0; rank + 1 < std::ssize(plan.cuts); ++rank) {
    const auto stage = static_cast<std::size_t>(rank);
    const StageParts parts =
        stage_parts(plan.model.config, all, plan.numerics, plan.cuts[stage], plan.cuts[stage + 1]);
    for (std::int64_t i = 0; i < std::ssize(parts.parameters); ++i)
      if (parts.parameters[static_cast<std::size_t>(i)].trainable)
        owners[static_cast<std::size_t>(number_of(parts.parameters, i))] = {rank, i};
  }
  std::vector<Run> runs;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!all[i].trainable) continue;
    const Owner& owner = owners[i];
    if (runs.empty() || runs.back().rank != owner.rank)
      runs.push_back({owner.rank, owner.at, owner.at});
    runs.back().end = owner.at + 1;
  }
  return runs;
}

RunRanks::RunRanks(const RunPlan& plan, Device& device, comm::MessageLink* link) : link_(link) {
  LS_CHECK(plan.place.stages == (link == nullptr ? 1 : link->size()), "{} stages, {} ranks",
           plan.place.stages, link == nullptr ? 1 : link->size());
  if (!several()) return;
  runs_ = runs_of(plan);
  neighbours_ = std::make_unique<LinkedStages>(device, *link, message_bytes(plan));
  tied_ = std::make_unique<TiedStages>(device, *link, plan.part.parameters);
  votes_ = std::make_unique<comm::StopVotes>(*link, kVoteLag * link->size());
  reported_ = link->counters();
}

void RunRanks::before_task(const SequenceProgress& progress, const RunControl& control) {
  if (!several()) return;
  link_->progressed();
  if (std::exchange(episode_, progress.episode) == progress.episode) return;
  stop_signal_ = votes_->pass(control.stop_signal ? control.stop_signal() : 0);
  if (stop_signal_ != 0) throw Interrupted("stopped between two chunks");
}

void RunRanks::end_tasks() {
  if (!several()) return;
  neighbours_->finish();
  episode_ = -1;
  stop_signal_ = votes_->finish();
  if (stop_signal_ != 0) throw Interrupted("stopped after the last chunk");
}

void RunRanks::settle_stop() {
  if (!several()) return;
  neighbours_->finish();
  episode_ = -1;
  stop_signal_ = std::max(stop_signal_, votes_->finish());
}

void RunRanks::share_results(StepReport& report, std::string& nonfinite) {
  if (!several()) return;
  struct Mine {
    StepStatistics statistics;
    std::int64_t bytes_sent = 0;
    double seconds_waiting = 0;
  };
  const comm::ByteCounters now = link_->counters(), before = std::exchange(reported_, now);
  const std::vector<Mine> all =
      comm::gather<Mine>(*link_, {report, now.tensors_sent() - before.tensors_sent(),
                                  now.seconds_waited - before.seconds_waited});
  report.loss_sum = all.back().statistics.loss_sum;
  report.correct = all.back().statistics.correct;
  report.ranks = link_->size();
  report.moved = {};
  report.selection = {};
  for (const Mine& one : all) {
    const StepSeconds& s = one.statistics.seconds;
    report.seconds.forward = std::max(report.seconds.forward, s.forward);
    report.seconds.recompute = std::max(report.seconds.recompute, s.recompute);
    report.seconds.backward = std::max(report.seconds.backward, s.backward);
    if (one.statistics.move_times.hidden_share() < report.move_times.hidden_share())
      report.move_times = one.statistics.move_times;
    report.moved += one.statistics.moved;
    report.selection += one.statistics.selection;
    report.bytes_sent += one.bytes_sent;
    report.seconds_waiting = std::max(report.seconds_waiting, one.seconds_waiting);
  }
  nonfinite = comm::share_text(*link_, link_->size() - 1, nonfinite);
}

RunRanks::Losses RunRanks::share_losses(const StepRunner& runner, std::int64_t tokens) {
  Losses all;
  if (is_last()) {
    all.losses.assign(runner.losses().begin(), runner.losses().end());
    all.correct.assign(runner.correct().begin(), runner.correct().end());
  }
  if (!several()) return all;
  all.losses.resize(static_cast<std::size_t>(tokens));
  all.correct.resize(all.losses.size());
  const int last = link_->size() - 1;
  comm::share_bytes(*link_, last, {all.losses.data(), tokens * std::int64_t{sizeof(float)}});
  comm::share_bytes(*link_, last, {all.correct.data(), tokens});
  return all;
}

void RunRanks::finish_gradients(ParameterSet& gradients) {
  if (several())
    tied_->fold(gradients);
  else
    add_head_gradient(gradients);
}

void RunRanks::share_weights(ParameterSet& weights) {
  if (several()) tied_->share(weights);
}

double RunRanks::gradient_norm(Optimizer& optimizer, const ParameterSet& gradients) {
  if (!several()) return optimizer.gradient_norm(gradients);
  double squares = 0;
  for (std::size_t i = 0; i < runs_.size(); ++i) {
    const Run& run = runs_[i];
    const bool mine = run.rank == link_->rank();
    if (mine) squares = optimizer.add_squares(gradients, run.begin, run.end, squares);
    if (i + 1 == runs_.size()) break;
    const int next = runs_[i + 1].rank;
    if (mine)
      link_->wait(link_->start_send(next, comm::send_buffer(squares), comm::Traffic::kControl));
    else if (next == link_->rank())
      link_->wait(
          link_->start_receive(run.rank, comm::receive_buffer(squares), comm::Traffic::kControl));
  }
  if (!runs_.empty()) comm::share(*link_, runs_.back().rank, squares);
  return std::sqrt(squares);
}

std::string RunRanks::first_nonfinite(Optimizer& optimizer, const ParameterSet& gradients) {
  std::string name = optimizer.first_nonfinite(gradients);
  if (!several()) return name;
  const std::vector<ParameterSpec>& specs = gradients.specs();
  const auto found = std::ranges::find(specs, name, &ParameterSpec::name);
  const std::int64_t mine =
      name.empty() || found == specs.end() ? -1 : number_of(specs, found - specs.begin());
  // In the order of the backward pass the highest number comes first.
  const std::vector<std::int64_t> numbers = comm::gather(*link_, mine);
  const auto rank = static_cast<int>(std::ranges::max_element(numbers) - numbers.begin());
  return comm::share_text(*link_, rank, name);
}

ops::KernelChoices RunRanks::share_choices(const ops::KernelChoices& mine) {
  if (!several()) return mine;
  ops::KernelChoices all;
  for (const std::string& text : comm::gather_texts(*link_, dump_json(Json(mine))))
    all.merge(Json::parse(text).get<ops::KernelChoices>());
  return all;
}

void RunRanks::throw_together(const Error& error) const {
  if (is_first()) throw Error(error);
  throw comm::RankFailed(0, 2, error.what());
}

}  // namespace longstride
