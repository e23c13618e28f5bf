// RunRanks: what the processes of a run do together. They agree on when to stop and on results, and
// add up the norm of all gradients in the order of the whole model. Without a link there is one
// process, and nothing is sent.
//
// All ranks call the same functions in the same order. The thread that runs the steps owns it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/control.h"
#include "comm/message_link.h"
#include "train/linked_stages.h"
#include "train/optimizer.h"
#include "train/run_plan.h"
#include "train/run_sinks.h"
#include "train/tied_stages.h"

namespace longstride {

class RunRanks {
 public:
  // The plan is complete. The link is null for one process; both must outlive this.
  RunRanks(const RunPlan& plan, Device& device, comm::MessageLink* link);

  bool several() const { return link_ != nullptr; }
  bool is_first() const { return !several() || link_->rank() == 0; }
  // It has the head, and so the losses.
  bool is_last() const { return !several() || link_->rank() == link_->size() - 1; }
  comm::MessageLink& link() { return *link_; }
  // The stages before and after this one; null in one process.
  Neighbours* neighbours() { return neighbours_.get(); }

  // Before every task: this rank is alive. At the first task of an episode (a chunk, or a pair of
  // them) all ranks vote; where they agree to stop it throws Interrupted.
  void before_task(const SequenceProgress& progress, const RunControl& control);
  // After the last task of a step or of an evaluation: everything sent has arrived. Throws
  // Interrupted if a rank was asked to stop.
  void end_tasks();
  // After an Interrupted: nothing is under way any more.
  void settle_stop();
  int stop_signal() const { return stop_signal_; }
  // Whether any rank says so.
  bool any(bool mine) { return several() ? comm::largest(*link_, mine ? 1 : 0) != 0 : mine; }

  // Sums over the ranks, and the losses of the last one, in place of this rank's. `nonfinite`:
  // where a loss was not finite.
  void share_results(StepReport& report, std::string& nonfinite);
  // Losses, and which targets were correct, from the last rank to all; of so many tokens.
  struct Losses {
    std::vector<float> losses;
    std::vector<char> correct;
  };
  Losses share_losses(const StepRunner& runner, std::int64_t tokens);
  // Once per step, after end_tasks, before gradients are read: completes those of a tied embedding.
  void finish_gradients(ParameterSet& gradients);
  // After an update: copies of weights in other stages become the new ones.
  void share_weights(ParameterSet& weights);
  // In the order of the whole model's parameters: the bits of one process.
  double gradient_norm(Optimizer& optimizer, const ParameterSet& gradients);
  std::string first_nonfinite(Optimizer& optimizer, const ParameterSet& gradients);
  // Kernels of all ranks; of two for the same purpose, the lower rank's.
  ops::KernelChoices share_choices(const ops::KernelChoices& mine);

  // All ranks throw for the same reason: one of them tells it.
  [[noreturn]] void throw_together(const Error& error) const;

  // Bytes of host memory that messages between the stages of a plan take.
  static std::int64_t host_bytes(const RunPlan& plan);

 private:
  // Neighbours in the list of trained parameters that one rank has; [begin, end) in its own list.
  struct Run {
    int rank = 0;
    std::int64_t begin = 0, end = 0;
  };
  static std::vector<Run> runs_of(const RunPlan& plan);

  comm::MessageLink* link_;
  std::vector<Run> runs_;
  std::unique_ptr<LinkedStages> neighbours_;
  std::unique_ptr<TiedStages> tied_;
  std::unique_ptr<comm::StopVotes> votes_;
  std::int64_t episode_ = -1;  // of the last task
  int stop_signal_ = 0;
  comm::ByteCounters reported_;
};

}  // namespace longstride
