#include "plan/pipeline_simulation.h"

#include <algorithm>
#include <deque>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"

namespace longstride {
namespace {

constexpr std::int64_t kNone = PipelineTask::kNone;

// The messages of one boundary in one direction, in the order of sending, which is that of
// receiving.
class Line {
 public:
  Line(const PipelineLink& link, const std::vector<std::int64_t>& chunk_bytes)
      : link_(link), chunk_bytes_(chunk_bytes) {}

  // Returns the message's number.
  std::size_t send(std::int64_t chunk, double at) {
    messages_.push_back({chunk, at});
    arrive();
    return messages_.size() - 1;
  }
  // The receiver is ready for its next message.
  std::size_t ask(std::int64_t chunk, double at) {
    asked_.push_back({chunk, at});
    arrive();
    return asked_.size() - 1;
  }
  // When the message is there, and its buffer free; nothing: that is not known yet.
  std::optional<double> arrived(std::size_t message) const {
    if (message < arrived_.size()) return arrived_[message];
    return std::nullopt;
  }
  std::int64_t bytes() const { return bytes_; }
  bool is_empty() const { return messages_.size() == asked_.size(); }

 private:
  struct End {
    std::int64_t chunk = 0;
    double at = 0;
  };
  void arrive() {
    while (arrived_.size() < std::min(messages_.size(), asked_.size())) {
      const End &sent = messages_[arrived_.size()], &asked = asked_[arrived_.size()];
      LS_CHECK(sent.chunk == asked.chunk, "chunk {} is sent, and {} is waited for", sent.chunk,
               asked.chunk);
      const std::int64_t bytes = chunk_bytes_.at(static_cast<std::size_t>(sent.chunk));
      const double begin = std::max({free_, sent.at, asked.at});
      free_ = begin + link_.latency + link_.seconds_of(static_cast<double>(bytes));
      bytes_ += bytes;
      arrived_.push_back(free_);
    }
  }

  const PipelineLink& link_;
  const std::vector<std::int64_t>& chunk_bytes_;
  std::vector<End> messages_, asked_;
  std::vector<double> arrived_;
  double free_ = 0;  // when the line's last message was there
  std::int64_t bytes_ = 0;
};

struct Message {
  Line* line = nullptr;
  std::size_t number = 0;
};

// A stage that has come so far.
class Walker {
 public:
  Walker(const PipelineInput& input, std::int64_t stage)
      : tasks_(input.stages[static_cast<std::size_t>(stage)]),
        link_(input.link),
        stage_(stage),
        sequences_(input.sequences) {}

  // Lines to and from the stages before and after; null where there is none.
  Line *from_before = nullptr, *to_before = nullptr, *from_after = nullptr, *to_after = nullptr;

  bool done() const { return sequence_ == sequences_; }
  double now() const { return now_; }
  double busy() const { return busy_; }
  const std::vector<PipelineEvent>& events() const { return events_; }

  // Goes on as far as is known. Returns whether it did.
  bool go_on() {
    bool moved = false;
    while (!done() && step()) moved = true;
    return moved;
  }

 private:
  enum class At : std::uint8_t { kReceive, kWait, kWork, kSend };

  // One part of a task; false if it depends on what another stage has not done yet.
  bool step() {
    if (next_ == tasks_.size()) return end_sequence();
    const PipelineTask& task = tasks_[next_];
    const bool forward = task.phase == PipelinePhase::kForward;
    switch (at_) {
      case At::kReceive:
        if (next_ == 0) ask_for(link_.receive_buffers);
        if (task.receives != kNone && link_.receive_buffers == 0) ask_for(1);
        at_ = task.receives == kNone ? At::kWork : At::kWait;
        return true;
      case At::kWait: {
        const std::optional<double> there = coming_.front().line->arrived(coming_.front().number);
        if (!there) return false;
        now_ = std::max(now_, *there);
        coming_.pop_front();
        if (link_.receive_buffers > 0) ask_for(1);
        at_ = At::kWork;
        return true;
      }
      case At::kWork:
        events_.push_back({stage_, sequence_, task.phase, task.chunk, now_, now_ + task.seconds});
        now_ += task.seconds;
        busy_ += task.seconds;
        at_ = At::kSend;
        return true;
      case At::kSend:
        if (task.sends != kNone) {
          if (std::ssize(under_way_) == link_.send_buffers && !wait_for_oldest()) return false;
          Line* to = forward ? to_after : to_before;
          LS_CHECK(to != nullptr, "stage {} has nobody to send to", stage_);
          under_way_.push_back({to, to->send(task.sends, now_)});
        }
        at_ = At::kReceive;
        ++next_;
        return true;
    }
    return false;
  }

  // For so many messages more, as far as there are any in the sequence.
  void ask_for(std::int64_t messages) {
    for (; messages > 0 && asked_ < tasks_.size(); ++asked_) {
      const PipelineTask& task = tasks_[asked_];
      if (task.receives == kNone) continue;
      Line* const from = task.phase == PipelinePhase::kForward ? from_before : from_after;
      LS_CHECK(from != nullptr, "stage {} has nobody to receive from", stage_);
      coming_.push_back({from, from->ask(task.receives, now_)});
      --messages;
    }
  }

  bool wait_for_oldest() {
    const std::optional<double> gone = under_way_.front().line->arrived(under_way_.front().number);
    if (!gone) return false;
    now_ = std::max(now_, *gone);
    under_way_.erase(under_way_.begin());
    return true;
  }

  bool end_sequence() {
    while (!under_way_.empty())
      if (!wait_for_oldest()) return false;
    ++sequence_;
    next_ = asked_ = 0;
    return true;
  }

  const std::vector<PipelineTask>& tasks_;
  const PipelineLink& link_;
  std::int64_t stage_, sequences_;
  std::int64_t sequence_ = 0;
  std::size_t next_ = 0, asked_ = 0;  // of the sequence's tasks; `asked_`: whose messages are next
  At at_ = At::kReceive;
  double now_ = 0, busy_ = 0;
  std::deque<Message> coming_;  // asked for, in their order
  std::vector<Message> under_way_;
  std::vector<PipelineEvent> events_;
};

}  // namespace

const char* name_of(PipelinePhase phase) {
  switch (phase) {
    case PipelinePhase::kForward:
      return "forward";
    case PipelinePhase::kRecompute:
      return "recompute";
    case PipelinePhase::kBackward:
      return "backward";
  }
  return "";
}

double PipelineRun::idle_share(std::int64_t stage) const {
  return seconds > 0 ? 1 - busy[static_cast<std::size_t>(stage)] / seconds : 0;
}

double PipelineRun::idle_share() const {
  const double all = seconds * static_cast<double>(stages());
  return all > 0 ? 1 - std::accumulate(busy.begin(), busy.end(), 0.0) / all : 0;
}

PipelineRun simulate_pipeline(const PipelineInput& input) {
  const std::int64_t stages = std::ssize(input.stages);
  LS_CHECK(stages >= 1 && input.sequences >= 1 && input.link.send_buffers >= 1,
           "{} stages, {} sequences, {} buffers", stages, input.sequences, input.link.send_buffers);
  const auto boundaries = static_cast<std::size_t>(stages - 1);
  std::vector<Line> up(boundaries, Line(input.link, input.chunk_bytes)), down = up;
  std::vector<Walker> walkers;
  for (std::int64_t s = 0; s < stages; ++s) {
    Walker& walker = walkers.emplace_back(input, s);
    const auto below = static_cast<std::size_t>(s - 1), above = static_cast<std::size_t>(s);
    if (s > 0) {
      walker.from_before = &up[below];
      walker.to_before = &down[below];
    }
    if (s + 1 < stages) {
      walker.to_after = &up[above];
      walker.from_after = &down[above];
    }
  }
  bool moved = true;
  while (moved) {
    moved = false;
    for (Walker& walker : walkers) moved = walker.go_on() || moved;
  }
  PipelineRun run;
  for (const Walker& walker : walkers) {
    LS_CHECK(walker.done(), "stages wait for each other forever");
    run.seconds = std::max(run.seconds, walker.now());
    run.busy.push_back(walker.busy());
    run.events.insert(run.events.end(), walker.events().begin(), walker.events().end());
  }
  for (std::size_t i = 0; i < boundaries; ++i) {
    LS_CHECK(up[i].is_empty() && down[i].is_empty(), "a message that nobody receives");
    run.boundary_bytes.push_back(up[i].bytes() + down[i].bytes());
  }
  return run;
}

namespace {

// The tasks without their seconds; `cuts`, by task of the schedule: whether one begins there.
std::vector<PipelineTask> cut_schedule(const StepSchedule& schedule, const Stage& stage,
                                       std::vector<bool>& cuts) {
  std::vector<PipelineTask> result;
  for (const Episode& episode : schedule.episodes) {
    bool open = false, backward = false;
    const bool pair = episode.kind == EpisodeKind::kWavefront;
    for (const Task& task : episode.tasks) {
      const bool gradient = task.kind == TaskKind::kReceiveGradient,
                 sends = task.kind == TaskKind::kSend || task.kind == TaskKind::kSendGradient,
                 input = task.kind == TaskKind::kEmbed && task.output && stage.receives;
      backward = backward || gradient || task.kind == TaskKind::kHead;
      const PipelinePhase phase = backward ? PipelinePhase::kBackward
                                  : episode.kind == EpisodeKind::kRecompute
                                      ? PipelinePhase::kRecompute
                                      : PipelinePhase::kForward;
      cuts.push_back(!open || input || gradient || phase != result.back().phase ||
                     (task.chunk != result.back().chunk && !pair));
      if (cuts.back()) result.push_back({.phase = phase, .chunk = task.chunk});
      if (input || gradient) result.back().receives = task.chunk;
      if (sends) result.back().sends = task.chunk;
      open = !sends;
    }
  }
  return result;
}

}  // namespace

std::vector<bool> pipeline_cuts(const StepSchedule& schedule, const Stage& stage) {
  std::vector<bool> cuts;
  cut_schedule(schedule, stage, cuts);
  return cuts;
}

std::vector<PipelineTask> pipeline_tasks(const StepSchedule& schedule, const Stage& stage,
                                         const std::vector<double>& task_seconds) {
  std::vector<bool> cuts;
  std::vector<PipelineTask> tasks = cut_schedule(schedule, stage, cuts);
  LS_CHECK(cuts.size() == task_seconds.size(), "{} times for {} tasks", task_seconds.size(),
           cuts.size());
  std::size_t begun = 0;
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    if (cuts[i]) ++begun;
    tasks[begun - 1].seconds += task_seconds[i];
  }
  return tasks;
}

std::vector<std::vector<PipelineTask>> equal_stages(const std::vector<PipelineTask>& tasks,
                                                    const Stage& stage, std::int64_t stages) {
  const bool between = stage.receives && stage.sends;
  std::set<std::pair<PipelinePhase, std::int64_t>> chunks;
  for (const PipelineTask& task : tasks)
    LS_CHECK(chunks.insert({task.phase, task.chunk}).second || between,
             "chunk {} is in several tasks", task.chunk);
  std::vector<std::vector<PipelineTask>> all;
  for (std::int64_t s = 0; s < stages; ++s) {
    all.push_back(tasks);
    const bool first = s == 0, last = s + 1 == stages;
    for (PipelineTask& task : all.back()) {
      if (task.phase == PipelinePhase::kRecompute) continue;
      const bool forward = task.phase == PipelinePhase::kForward;
      if (!between) task.receives = task.sends = task.chunk;
      if (forward ? first : last) task.receives = kNone;
      if (forward ? last : first) task.sends = kNone;
    }
  }
  return all;
}

}  // namespace longstride
