#include "train/run_ranks.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/process_memory.h"
#include "model/page_selector.h"
#include "model/tied_head.h"

namespace longstride {
namespace {

// A rank may be this many chunks (or pairs of them) of each stage ahead of another before it waits
// for its vote.
constexpr int kVoteLag = 4;

// Of the largest slice of a chunk, with so many columns.
std::int64_t slice_bytes(const RunPlan& plan, std::int64_t columns) {
  const NumericsRecord& numerics = plan.part.numerics;
  return plan.place.head_share().most_rows(
             std::min(numerics.chunk_tokens, plan.config.training.context)) *
         columns * size_of(numerics.compute);
}

std::int64_t message_bytes(const RunPlan& plan) {
  return slice_bytes(plan, plan.part.config.hidden_size);
}

HeadRoom exchange_room(const RunPlan& plan) {
  const NumericsRecord& numerics = plan.part.numerics;
  HeadRoom room{slice_bytes(plan, plan.part.config.query_heads * plan.part.config.head_size)};
  if (numerics.sparse.any())
    room.gathered = plan.place.heads *
                    PageSelector::most_score_bytes({plan.config.training.context,
                                                    numerics.chunk_tokens, numerics.page_tokens});
  return room;
}

}  // namespace

GroupSumsBytes RunRanks::group_sums_bytes(const RunPlan& plan) {
  return GroupSums::bytes_needed(plan.part.parameters, plan.numerics.data_groups * plan.place.heads,
                                 plan.place.shards, plan.place.shard,
                                 {.direct = plan.place.direct});
}

PortBytes RunRanks::message_memory(const RunPlan& plan, const Device& device) {
  PortBytes bytes;
  if (plan.place.stages > 1) {
    bytes = message_port_bytes(device, message_bytes(plan), plan.place.direct);
    bytes.host += TiedStages::host_bytes(plan.part.parameters);
  }
  if (plan.place.heads > 1) {
    const PortBytes heads = head_exchange_bytes(exchange_room(plan), plan.place.direct);
    bytes.host += heads.host;
    bytes.device += heads.device;
  }
  // What they take of the device counts as gradients.
  bytes.host += group_sums_bytes(plan).host;
  return bytes;
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

RunRanks::RunRanks(const RunPlan& plan, Device& device, comm::MessageLink* link,
                   comm::Link* tensors)
    : link_(link),
      tensors_(tensors != nullptr ? tensors : link),
      place_(plan.place),
      groups_(plan.numerics.data_groups),
      batch_(plan.config.training.batch) {
  const int ranks = link == nullptr ? 1 : link->size();
  LS_CHECK(place_.stages * place_.shards == ranks && groups_ % place_.pipelines() == 0,
           "{} stages, {} pipelines, {} groups, {} ranks", place_.stages, place_.shards, groups_,
           ranks);
  if (several()) {
    std::vector<int> stages, heads, together, same_stage;
    const std::int64_t first = place_.pipeline() * place_.heads;  // of those who share heads
    for (std::int64_t s = 0; s < place_.stages; ++s) {
      stages.push_back(rank_of(place_.shard, s));
      for (std::int64_t h = 0; h < place_.heads; ++h) together.push_back(rank_of(first + h, s));
    }
    for (std::int64_t h = 0; h < place_.heads; ++h)
      heads.push_back(rank_of(first + h, place_.stage));
    for (std::int64_t s = 0; s < place_.shards; ++s) same_stage.push_back(rank_of(s, place_.stage));
    if (place_.stages > 1) stages_.emplace(*tensors_, stages);
    if (place_.heads > 1) heads_.emplace(*tensors_, heads);
    if (together.size() > 1) together_.emplace(*link, together);
    if (place_.shards > 1) same_stage_.emplace(*tensors_, same_stage);
    reported_ = tensors_->counters();
  }
  // Those who share heads have sums over their tokens: each of them counts as a group.
  if (const std::int64_t sums = groups_ * place_.heads; sums > 1)
    sums_ = std::make_unique<GroupSums>(device, plan.part.parameters, sums, same_stage(),
                                        GroupSumsOptions{.direct = place_.direct});
  if (heads_) exchange_ = make_head_exchange(device, *heads_, exchange_room(plan), place_.direct);
  if (together_)
    votes_ =
        std::make_unique<comm::StopVotes>(*together_, kVoteLag * static_cast<int>(place_.stages));
  if (!stages_) return;
  runs_ = runs_of(plan);
  neighbours_ = std::make_unique<LinkedStages>(device, *stages_, message_bytes(plan));
  tied_ = std::make_unique<TiedStages>(device, *stages_, plan.part.parameters);
}

RunRanks::Sequences RunRanks::sequences(std::int64_t round) const {
  const std::int64_t each = batch_ / groups_, group = round * pipelines() + pipeline();
  return {group * each, (group + 1) * each};
}

void RunRanks::before_task(const SequenceProgress& progress, const RunControl& control) {
  if (!several()) return;
  link_->progressed();
  if (std::exchange(episode_, progress.episode) == progress.episode) return;
  has_agreed_ = false;
  int signal = control.stop_signal ? control.stop_signal() : 0;
  // The stages of a pipeline stop at the same chunk; the others stop when they hear of it.
  if (same_stage_) {
    if (signal != 0) link_->ask_to_stop(signal);
    signal = link_->asked_to_stop();
  }
  stop_signal_ = votes_ ? votes_->pass(signal) : signal;
  if (stop_signal_ != 0) throw Interrupted("stopped between two chunks");
}

int RunRanks::agreed(int signal) {
  episode_ = -1;
  if (std::exchange(has_agreed_, true) || !same_stage_) return signal;
  return comm::largest(*link_, signal);
}

void RunRanks::end_tasks() {
  if (!several()) return;
  if (neighbours_) neighbours_->finish();
  has_agreed_ = false;  // also where there was nothing to do
  stop_signal_ = agreed(votes_ ? votes_->finish() : 0);
  if (stop_signal_ != 0) throw Interrupted("stopped after the last chunk");
}

void RunRanks::settle_stop() {
  if (!several()) return;
  if (neighbours_) neighbours_->finish();
  if (votes_) {
    // Nobody sends anything but votes before all stages have taken back their receives.
    votes_->pass(stop_signal_);
    stop_signal_ = std::max(stop_signal_, votes_->finish());
  }
  stop_signal_ = agreed(stop_signal_);
}

void RunRanks::share_results(StepReport& report, const std::vector<Group>& groups,
                             std::string& nonfinite) {
  // Everybody's groups, by rank and round.
  const std::size_t rounds = groups.size();
  std::vector<std::vector<Group>> all_groups(static_cast<std::size_t>(place_.rank()) + 1, groups);
  if (several()) {
    all_groups.resize(static_cast<std::size_t>(link_->size()), groups);
    std::vector<comm::ReceiveBuffer> to;
    const auto bytes = static_cast<std::int64_t>(rounds * sizeof(Group));
    for (std::vector<Group>& one : all_groups) to.emplace_back(one.data(), bytes);
    comm::gather_bytes(*link_, {groups.data(), bytes}, to);
  }
  report.loss_sum = 0;
  report.correct = 0;
  int speaker = -1;
  for (std::size_t round = 0; round < rounds; ++round)
    for (std::int64_t shard = 0; shard < place_.shards; ++shard) {
      const auto last = static_cast<std::size_t>(rank_of(shard, place_.stages - 1));
      const Group& group = all_groups[last][round];
      report.loss_sum += group.loss_sum;
      report.correct += group.correct;
      if (group.nonfinite >= 0 && speaker < 0) speaker = static_cast<int>(last);
    }
  if (!several()) return;
  struct Mine {
    StepStatistics statistics;
    std::int64_t bytes_sent = 0;
    double seconds_waiting = 0;
    std::int64_t peak_rss = 0;
  };
  const comm::ByteCounters now = tensors_->counters(), before = std::exchange(reported_, now);
  const std::vector<Mine> all = comm::gather<Mine>(
      *link_, {report, now.tensors_sent() - before.tensors_sent(),
               now.seconds_waited - before.seconds_waited, peak_resident_bytes()});
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
    report.peak_rss = std::max(report.peak_rss, one.peak_rss);
  }
  nonfinite = speaker < 0 ? "" : comm::share_text(*link_, speaker, nonfinite);
  // Lengths of the sequences of all pipelines; those who share heads have the same.
  if (!same_stage_) return;
  std::vector<std::int64_t>& lengths = report.document_lengths;
  const std::string mine(reinterpret_cast<const char*>(lengths.data()),
                         lengths.size() * sizeof(std::int64_t));
  lengths.clear();
  const std::vector<std::string> all_lengths = comm::gather_texts(*same_stage_, mine);
  for (std::size_t shard = 0; shard < all_lengths.size();
       shard += static_cast<std::size_t>(place_.heads)) {
    const std::string& text = all_lengths[shard];
    const std::size_t begin = lengths.size();
    lengths.resize(begin + text.size() / sizeof(std::int64_t));
    std::memcpy(lengths.data() + begin, text.data(), text.size());
  }
}

std::optional<RunNeeds> RunRanks::worst(const RunNeeds& mine) {
  if (!several()) return std::nullopt;
  const std::vector<RunNeeds> all = comm::gather(*link_, mine);
  RunNeeds worst = *std::ranges::max_element(all, {}, &RunNeeds::total);
  for (const RunNeeds& one : all) {
    worst.optimizer_host = std::max(worst.optimizer_host, one.optimizer_host);
    worst.optimizer_disk = std::max(worst.optimizer_disk, one.optimizer_disk);
    worst.step.host_pages = std::max(worst.step.host_pages, one.step.host_pages);
    worst.step.disk_pages = std::max(worst.step.disk_pages, one.step.disk_pages);
    worst.step.host_activations = std::max(worst.step.host_activations, one.step.host_activations);
    worst.step.disk_activations = std::max(worst.step.disk_activations, one.step.disk_activations);
  }
  return worst;
}

RunRanks::Losses RunRanks::share_losses(const StepRunner& runner, std::int64_t tokens,
                                        std::int64_t pipeline) {
  Losses all;
  if (!several()) {
    all.losses.assign(runner.losses().begin(), runner.losses().end());
    all.correct.assign(runner.correct().begin(), runner.correct().end());
    return all;
  }
  const auto size = static_cast<std::size_t>(tokens);
  all.losses.resize(size);
  all.correct.resize(size);
  const SequenceLayout layout{tokens, runner.plan().chunk_tokens, runner.plan().page_tokens, {0}};
  for (std::int64_t head = 0; head < place_.heads; ++head) {
    const std::int64_t shard = pipeline * place_.heads + head;
    Losses one{std::vector<float>(size), std::vector<char>(size)};
    if (is_last() && shard == place_.shard) {
      std::ranges::copy(runner.losses(), one.losses.begin());
      std::ranges::copy(runner.correct(), one.correct.begin());
    }
    const int last = rank_of(shard, place_.stages - 1);
    comm::share_bytes(*link_, last, {one.losses.data(), tokens * std::int64_t{sizeof(float)}});
    comm::share_bytes(*link_, last, {one.correct.data(), tokens});
    // Of each chunk, the slice that it had.
    for (std::int64_t chunk = 0; chunk < layout.chunks(); ++chunk) {
      const TokenSlice slice = HeadShare{place_.heads, head}.slice(layout.chunk_size(chunk));
      const std::int64_t begin = layout.chunk_begin(chunk) + slice.begin;
      std::copy_n(one.losses.begin() + begin, slice.tokens, all.losses.begin() + begin);
      std::copy_n(one.correct.begin() + begin, slice.tokens, all.correct.begin() + begin);
    }
  }
  return all;
}

void RunRanks::finish_round(ParameterSet& gradients, std::int64_t round) {
  if (tied_)
    tied_->fold(gradients);
  else
    add_head_gradient(gradients);
  if (sums_) sums_->add_round(gradients, round);
}

GradientOf RunRanks::gradients_of(const Optimizer& optimizer, const ParameterSet& gradients) const {
  if (!sums_) return optimizer.in_shard(gradients);
  return [this, &gradients](std::int64_t i) { return sums_->sum_of(gradients, i); };
}

void RunRanks::share_weights(ParameterSet& weights) {
  if (sums_) sums_->share_weights(weights);
  if (tied_) tied_->share(weights);
}

double RunRanks::norm_of_pieces(Optimizer& optimizer, const ParameterSet& gradients) {
  const std::vector<ParameterPiece>& pieces = sums_->pieces();
  const std::vector<double> sums =
      optimizer.piece_squares(gradients_of(optimizer, gradients), pieces);
  squares_.clear();
  for (std::size_t i = 0; i < pieces.size(); ++i)
    squares_.push_back(
        {number_of(gradients.specs(), pieces[i].parameter), pieces[i].first, sums[i]});
  if (several()) {
    const std::string mine(reinterpret_cast<const char*>(squares_.data()),
                           squares_.size() * sizeof(PieceSquares));
    squares_.clear();
    for (const std::string& text : comm::gather_texts(*link_, mine)) {
      const std::size_t count = text.size() / sizeof(PieceSquares), begin = squares_.size();
      squares_.resize(begin + count);
      std::memcpy(squares_.data() + begin, text.data(), text.size());
    }
  }
  std::ranges::sort(squares_, {},
                    [](const PieceSquares& one) { return std::pair(one.number, one.first); });
  double all = 0;
  for (const PieceSquares& one : squares_) all += one.squares;
  return std::sqrt(all);
}

double RunRanks::gradient_norm(Optimizer& optimizer, const ParameterSet& gradients) {
  if (sums_) return norm_of_pieces(optimizer, gradients);
  if (!several()) return optimizer.gradient_norm(gradients);
  double squares = 0;
  for (std::size_t i = 0; i < runs_.size(); ++i) {
    const Run& run = runs_[i];
    const bool mine = run.rank == stages_->rank();
    if (mine) squares = optimizer.add_squares(gradients, run.begin, run.end, squares);
    if (i + 1 == runs_.size()) break;
    const int next = runs_[i + 1].rank;
    if (mine)
      stages_->wait(stages_->start_send(next, comm::send_buffer(squares), comm::Traffic::kControl));
    else if (next == stages_->rank())
      stages_->wait(
          stages_->start_receive(run.rank, comm::receive_buffer(squares), comm::Traffic::kControl));
  }
  if (!runs_.empty()) comm::share(*stages_, runs_.back().rank, squares);
  return std::sqrt(squares);
}

std::string RunRanks::first_nonfinite(Optimizer& optimizer, const ParameterSet& gradients) {
  const std::vector<ParameterSpec>& specs = gradients.specs();
  std::string name;
  std::int64_t mine = -1;  // in the order of the backward pass the highest number comes first
  if (sums_) {
    for (const PieceSquares& one : squares_)
      if (!std::isfinite(one.squares)) mine = std::max(mine, one.number);
    for (std::int64_t i = 0; i < std::ssize(specs); ++i)
      if (specs[static_cast<std::size_t>(i)].trainable && number_of(specs, i) == mine)
        name = specs[static_cast<std::size_t>(i)].name;
    if (name.empty()) mine = -1;  // of another stage
  } else {
    name = optimizer.first_nonfinite(gradients);
    const auto found = std::ranges::find(specs, name, &ParameterSpec::name);
    if (!name.empty() && found != specs.end()) mine = number_of(specs, found - specs.begin());
  }
  if (!several()) return name;
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
