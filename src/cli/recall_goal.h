// Decides when the demo's task is learned: nearly all answers correct over several steps in a row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

namespace longstride::cli {

class RecallGoal {
 public:
  static constexpr double kEnough = 0.99;
  static constexpr std::size_t kSteps = 8;

  void add_step(std::int64_t correct, std::int64_t answers) {
    last_.push_back({correct, answers});
    if (last_.size() > kSteps) last_.pop_front();
  }
  bool reached() const { return last_.size() == kSteps && recall() >= kEnough; }
  // Over the last kSteps steps, or all if there were fewer.
  double recall() const {
    std::int64_t correct = 0, answers = 0;
    for (const Step& step : last_) {
      correct += step.correct;
      answers += step.answers;
    }
    return answers == 0 ? 0 : static_cast<double>(correct) / static_cast<double>(answers);
  }
  std::size_t steps() const { return last_.size(); }

 private:
  struct Step {
    std::int64_t correct, answers;
  };
  std::deque<Step> last_;
};

}  // namespace longstride::cli
