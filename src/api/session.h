// Session: a model in its user's own loop. It loads or makes a model, plans its memory, and runs
// forward and backward passes, updates and saves, one call at a time.
//
// One thread of one process owns it: the one that made it. A call from another thread, or from a
// forked child, throws Error. When a call returns, all of its work is done.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "train/engine.h"
#include "train/run_plan.h"

namespace longstride::api {

// A sequence. Only the tokens are needed.
struct Batch {
  std::span<const std::int32_t> tokens;
  // The target of each token, negative: none. Absent (null): the next token of the same document.
  const std::vector<std::int32_t>* targets = nullptr;
  std::span<const std::int64_t> documents = {};  // first tokens, ascending from 0; empty: one
  std::span<const float> weights = {};           // one per token, of any sign; empty: all 1
  std::span<const float> old_logprobs = {};      // one per token: weights are of clipped ratios
  double clip_below = 0.2, clip_above = 0.2;
  // What the sum of weighted losses is divided by; 0: the sum of the weights, none of which may
  // then be negative.
  double divisor = 0;
};

struct Outcome {
  double loss = 0;              // divided
  std::int64_t targets = 0;     // counted ones
  std::vector<float> logprobs;  // of each token's target; 0 where there is none
};

// Between two chunks' tasks; true stops the call.
using Poll = std::function<bool(const SequenceProgress&)>;

class Session {
 public:
  // The settings are those of `longstride train`, as "section.key=value"; sections that a loop of
  // one's own replaces ([data], [schedule], ...) are refused. Throws Error, also if it does not
  // fit.
  explicit Session(const std::vector<std::string>& settings);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Gradients += those of the loss. If stopped, they are a partial sum, and only zero_gradients,
  // score and save are allowed until they are zeroed.
  Outcome backward(const Batch& batch, const Poll& poll = nullptr);
  // Losses alone.
  Outcome score(const Batch& batch, const Poll& poll = nullptr);
  // Scores, then goes backward with the weights that `weights_of` makes of the log-probabilities,
  // one per token: gradients += of the sum of weight * -log p. The batch has no weights.
  using WeightsOf = std::function<std::vector<float>(std::span<const float> logprobs)>;
  Outcome backward_of(const Batch& batch, const WeightsOf& weights_of, const Poll& poll = nullptr);

  void zero_gradients();
  double gradient_norm();
  // AdamW; `learning_rate` and the gradients' clipping in place of the settings', if given. Returns
  // the norm before clipping.
  double update(double learning_rate, std::optional<double> clip_norm);
  std::int64_t updates() const { return updates_; }
  // A Hugging Face directory, or with adapters a PEFT one. It must not exist.
  void save(const std::string& directory);

  // What is trained, by Hugging Face names; views of memory that lives as long as the session.
  const ParameterSet& weights() const { return engine_->weights(); }
  const ParameterSet& gradients() const { return engine_->gradients(); }
  const RunPlan& plan() const { return plan_; }
  Device& device() const { return *device_; }

 private:
  void enter();  // the owner's thread and process; other work of the device is done
  void check_whole() const;
  struct Prepared;
  Prepared prepare(const Batch& batch, bool weighs) const;
  Outcome outcome(const Prepared& prepared, const SequenceResult& result, double divisor) const;
  SequenceResult guarded(const std::function<SequenceResult()>& run);

  std::thread::id thread_;
  pid_t process_;
  std::unique_ptr<Device> device_;
  RunPlan plan_;
  std::unique_ptr<Engine> engine_;
  std::int64_t updates_ = 0;
  std::int64_t sequences_ = 0;  // keys of rounding and dropout
  bool partial_ = false;
};

}  // namespace longstride::api
