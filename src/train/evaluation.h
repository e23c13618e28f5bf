// Sums of an evaluation: loss and accuracy of all targets, of each document, and by how many tokens
// a prediction could see. Plain data.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/json.h"
#include "data/sample_stream.h"

namespace longstride {

struct TargetSums {
  std::int64_t targets = 0, correct = 0;  // correct: the target had the largest logit
  double loss = 0;                        // sum

  double mean_loss() const { return targets == 0 ? 0 : loss / static_cast<double>(targets); }
  double accuracy() const {
    return targets == 0 ? 0 : static_cast<double>(correct) / static_cast<double>(targets);
  }
  TargetSums& operator+=(const TargetSums& more);
};

// A document, or the part of one that a sample holds.
struct DocumentResult : TargetSums {
  std::int64_t tokens = 0;
  // What greedy decoding would give, if the targets are an answer.
  bool all_correct() const { return correct == targets; }
};

class Evaluation {
 public:
  // Adds a sample with its per-token losses, and whether each target had the largest logit.
  void add(const Sample& sample, std::span<const float> losses, std::span<const char> correct);

  const TargetSums& all() const { return all_; }
  const std::vector<DocumentResult>& documents() const { return documents_; }
  // Entry k: predictions that see 2^k to 2^(k+1) - 1 tokens of their document. They add up to all.
  const std::vector<TargetSums>& by_position() const { return by_position_; }

 private:
  TargetSums all_;
  std::vector<DocumentResult> documents_;
  std::vector<TargetSums> by_position_;
};

// {"loss", "accuracy", "targets", "by_position": [{"from", "to", ...}]}; positions without targets
// are left out.
OrderedJson to_json(const Evaluation& evaluation);

}  // namespace longstride
