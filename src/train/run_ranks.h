// RunRanks: what the processes of a run do together. They agree on when to stop and on results, and
// add up gradients and their norm in one order, however many they are. Without a link there is one
// process, and nothing is sent.
//
// The ranks of one pipeline follow each other; then come those of the next one, which has the same
// stages and works on other sequences. A stage of a pipeline may have several ranks, which share
// its heads and are neighbours (RankPlace).
//
// All ranks call the same functions in the same order. The thread that runs the steps owns it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/control.h"
#include "comm/message_link.h"
#include "comm/sub_link.h"
#include "train/group_sums.h"
#include "train/linked_stages.h"
#include "train/optimizer.h"
#include "train/run_plan.h"
#include "train/run_sinks.h"
#include "train/shared_heads.h"
#include "train/tied_stages.h"

namespace longstride {

class RunRanks {
 public:
  // The plan is complete. The link is null for one process; both must outlive this. `tensors`: the
  // link that tensors take, over the former; null: the same.
  RunRanks(const RunPlan& plan, Device& device, comm::MessageLink* link,
           comm::Link* tensors = nullptr);

  bool several() const { return link_ != nullptr; }
  bool is_first() const { return !several() || link_->rank() == 0; }
  // It has the head, and so the losses of its sequences.
  bool is_last() const { return place_.stage + 1 == place_.stages; }
  comm::MessageLink& link() { return *link_; }
  // The stages before and after this one; null where one process has all of them.
  Neighbours* neighbours() { return neighbours_.get(); }
  // The processes that share this stage's heads; null where one has all of them.
  HeadExchange* exchange() { return exchange_.get(); }
  // Between the processes with the same stage; null if there is one.
  comm::Link* same_stage() { return same_stage_ ? &*same_stage_ : nullptr; }

  // Sequences of a step are cut into groups, which are worked on in rounds.
  std::int64_t rounds() const { return groups_ / place_.pipelines(); }
  struct Sequences {
    std::int64_t begin = 0, end = 0;
  };
  // Of this process in a round.
  Sequences sequences(std::int64_t round) const;
  // Of an evaluation: sample `first + pipeline()` is this process's, up to first + pipelines().
  std::int64_t pipelines() const { return place_.pipelines(); }
  std::int64_t pipeline() const { return place_.pipeline(); }

  // Before every task: this rank is alive. At the first task of an episode (a chunk, or a pair of
  // them) all ranks vote; where they agree to stop it throws Interrupted.
  void before_task(const SequenceProgress& progress, const RunControl& control);
  // After the last task of a round or of an evaluation's: everything sent has arrived. Throws
  // Interrupted if a rank was asked to stop.
  void end_tasks();
  // After an Interrupted: nothing is under way any more.
  void settle_stop();
  int stop_signal() const { return stop_signal_; }
  // Whether any rank says so.
  bool any(bool mine) { return several() ? comm::largest(*link_, mine ? 1 : 0) != 0 : mine; }

  // Results of this process's group in a round.
  struct Group {
    double loss_sum = 0;
    std::int64_t correct = 0;
    std::int64_t nonfinite = -1;  // the first sequence with a loss that is not finite
  };
  // Sums over the ranks, and over the groups in their order, in place of this rank's. `groups`: of
  // this process, by round. `nonfinite`: where a loss was not finite.
  void share_results(StepReport& report, const std::vector<Group>& groups, std::string& nonfinite);
  // Memory of the rank that takes most of its device; of host memory and of the disk, each figure
  // is the largest of any rank. Nothing in one process.
  std::optional<RunNeeds> worst(const RunNeeds& mine);
  // Losses, and which targets were correct, of a sample of so many tokens that the pipeline of that
  // number has evaluated.
  struct Losses {
    std::vector<float> losses;
    std::vector<char> correct;
  };
  Losses share_losses(const StepRunner& runner, std::int64_t tokens, std::int64_t pipeline);
  // After end_tasks of a round: completes the gradients of a tied embedding, and adds the groups.
  void finish_round(ParameterSet& gradients, std::int64_t round);
  // After the last round: the gradients that this process updates with.
  GradientOf gradients_of(const Optimizer& optimizer, const ParameterSet& gradients) const;
  // After an update: all weights are the new ones.
  void share_weights(ParameterSet& weights);
  // In the order of the whole model's parameters: the bits of one process.
  double gradient_norm(Optimizer& optimizer, const ParameterSet& gradients);
  // After gradient_norm.
  std::string first_nonfinite(Optimizer& optimizer, const ParameterSet& gradients);
  // Kernels of all ranks; of two for the same purpose, the lower rank's.
  ops::KernelChoices share_choices(const ops::KernelChoices& mine);

  // All ranks throw for the same reason: one of them tells it.
  [[noreturn]] void throw_together(const Error& error) const;

  // Memory that the groups of a batch take.
  static GroupSumsBytes group_sums_bytes(const RunPlan& plan);
  // Memory that messages take: between stages, between those who share heads, and of groups in host
  // memory.
  static PortBytes message_memory(const RunPlan& plan, const Device& device);

 private:
  // Neighbours in the list of trained parameters that one rank has; [begin, end) in its own list.
  struct Run {
    int rank = 0;
    std::int64_t begin = 0, end = 0;
  };
  static std::vector<Run> runs_of(const RunPlan& plan);
  // The squares of a piece of a parameter, which has that number in the whole model.
  struct PieceSquares {
    std::int64_t number = 0, first = 0;
    double squares = 0;
  };
  double norm_of_pieces(Optimizer& optimizer, const ParameterSet& gradients);
  // Its number in the run.
  int rank_of(std::int64_t shard, std::int64_t stage) const {
    return static_cast<int>(place_.rank_of(shard, stage));
  }
  // The number to stop by that all pipelines agree on.
  int agreed(int signal);

  comm::MessageLink* link_;
  comm::Link* tensors_;  // counts the bytes of both
  RankPlace place_;
  std::int64_t groups_, batch_;
  // Absent: of one. The stages before and after, with the same heads; those who share them; both;
  // and all with the same stage.
  std::optional<comm::SubLink> stages_, heads_, together_, same_stage_;
  std::unique_ptr<GroupSums> sums_;    // null: one group
  std::vector<PieceSquares> squares_;  // of all, in order
  std::vector<Run> runs_;
  std::unique_ptr<LinkedStages> neighbours_;
  std::unique_ptr<HeadExchange> exchange_;
  std::unique_ptr<TiedStages> tied_;
  std::unique_ptr<comm::StopVotes> votes_;
  std::int64_t episode_ = -1;  // of the last task
  bool has_agreed_ = true;     // with the other pipelines, since the last task
  int stop_signal_ = 0;
  comm::ByteCounters reported_;
};

}  // namespace longstride
