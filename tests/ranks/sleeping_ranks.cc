// Ranks that sleep in place of computing: they go through the schedule of a stage, send and receive
// its chunks and vote as `train` does, so that the order and the seconds of a pipeline can be seen
// on a machine with few cores. Rank 0 compares with the simulation.
//
//   mpirun -np 7 sleeping_ranks CHUNKS SEQUENCES MILLISECONDS MORE
//
// A layer's forward pass of chunk c sleeps for MILLISECONDS + c * MORE, its backward pass for twice
// as long. Prints both seconds. Returns 1 if they differ by more than a tenth, or a task began
// before its time in the simulation, or later than by a tenth of the whole.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/trace_spans.h"
#include "comm/control.h"
#include "comm/launch.h"
#include "device/device.h"
#include "plan/pipeline_simulation.h"
#include "train/linked_stages.h"
#include "train/pipeline_outlook.h"

namespace longstride {
namespace {

constexpr std::int64_t kTokens = 16, kHidden = 32;  // of a chunk

struct Case {
  std::int64_t chunks = 0, sequences = 0;
  double seconds = 0, more = 0;  // of a forward pass
};

// Of a stage of one layer.
ScheduleOptions options_of(int rank, int ranks, std::int64_t chunks) {
  ScheduleOptions options;
  options.windows = {0};
  options.stage = {.first_layer = rank,
                   .receives = rank > 0,
                   .sends = rank + 1 < ranks,
                   .trains_below = rank > 0};
  if (rank > 0)  // what was sent is not sent again
    options.across_episodes.assign(static_cast<std::size_t>(chunks), Retention{Retained::kInput});
  return options;
}

double seconds_of(const Task& task, const Case& c) {
  const double forward = c.seconds + static_cast<double>(task.chunk) * c.more;
  if (task.kind == TaskKind::kLayerForward) return forward;
  if (task.kind == TaskKind::kLayerBackward) return 2 * forward;
  return task.kind == TaskKind::kHead ? forward / 4 : 0;
}

struct Stages {
  std::vector<StepSchedule> schedules;
  std::vector<std::vector<double>> seconds;  // by task
  PipelineInput input;
};

Stages stages_of(int ranks, const Case& c) {
  Stages all;
  const SequenceLayout layout{c.chunks * kTokens, kTokens, kTokens};
  for (int rank = 0; rank < ranks; ++rank) {
    const ScheduleOptions options = options_of(rank, ranks, c.chunks);
    const StepSchedule& schedule = all.schedules.emplace_back(make_step_schedule(layout, options));
    std::vector<double>& seconds = all.seconds.emplace_back();
    for (const Episode& episode : schedule.episodes)
      for (const Task& task : episode.tasks) seconds.push_back(seconds_of(task, c));
    all.input.stages.push_back(pipeline_tasks(schedule, options.stage, seconds));
  }
  all.input.chunk_bytes.assign(static_cast<std::size_t>(c.chunks),
                               kTokens * kHidden * std::int64_t{sizeof(float)});
  all.input.link = kHostLink;
  all.input.sequences = c.sequences;
  return all;
}

// A stage that sleeps.
class Sleeper {
 public:
  Sleeper(comm::MessageLink& link, const Case& c, const Stages& stages)
      : link_(link),
        case_(c),
        schedule_(stages.schedules[static_cast<std::size_t>(link.rank())]),
        cuts_(pipeline_cuts(schedule_, options_of(link.rank(), link.size(), c.chunks).stage)),
        device_(make_cpu_device()),
        neighbours_(*device_, link, kTokens * kHidden * std::int64_t{sizeof(float)}),
        votes_(link, 4 * link.size()),
        values_(kTokens * kHidden) {
    for (const Episode& episode : schedule_.episodes)
      for (const Task& task : episode.tasks)
        if (is_received(task))
          coming_.push_back({task.kind == TaskKind::kReceiveGradient, tensor().bytes()});
  }

  // When the tasks of the pipeline began, in its order, and the end of all.
  std::vector<double> run() {
    std::vector<double> begins;
    link_.barrier();
    std::uint64_t begin = trace_clock_ns();  // all are on one host
    comm::share(link_, 0, begin);
    const auto now = [&] { return static_cast<double>(trace_clock_ns() - begin) * 1e-9; };
    for (std::int64_t sequence = 0; sequence < case_.sequences; ++sequence) {
      std::size_t number = 0;
      neighbours_.begin(coming_);
      for (const Episode& episode : schedule_.episodes) {
        LS_CHECK(votes_.pass(0) == 0, "nobody votes for a stop");
        for (const Task& task : episode.tasks) {
          link_.progressed();
          receive(task, sequence);
          if (cuts_[number++]) begins.push_back(now());
          std::this_thread::sleep_for(std::chrono::duration<double>(seconds_of(task, case_)));
          send(task, sequence);
        }
      }
      neighbours_.end();
    }
    neighbours_.finish();
    votes_.finish();
    begins.push_back(now());
    return begins;
  }

 private:
  bool is_received(const Task& task) const {
    return task.kind == TaskKind::kReceiveGradient ||
           (task.kind == TaskKind::kEmbed && task.output && link_.rank() > 0);
  }
  View tensor() { return {values_.data(), DType::kF32, {kTokens, kHidden}}; }
  float mark(const Task& task, std::int64_t sequence, bool gradient) const {
    return static_cast<float>(1000 * sequence + 2 * task.chunk + (gradient ? 1 : 0));
  }
  void receive(const Task& task, std::int64_t sequence) {
    if (!is_received(task)) return;
    const bool gradient = task.kind == TaskKind::kReceiveGradient;
    if (gradient)
      neighbours_.receive_gradient(tensor());
    else
      neighbours_.receive(tensor());
    device_->stream().synchronize();
    const float expected = mark(task, sequence, gradient);
    LS_CHECK(std::ranges::all_of(values_, [&](float v) { return v == expected; }),
             "{} has arrived, not {}", values_.front(), expected);
  }
  void send(const Task& task, std::int64_t sequence) {
    const bool gradient = task.kind == TaskKind::kSendGradient;
    if (!gradient && task.kind != TaskKind::kSend) return;
    std::ranges::fill(values_, mark(task, sequence, gradient));
    if (gradient)
      neighbours_.send_gradient(tensor());
    else
      neighbours_.send(tensor());
  }

  comm::MessageLink& link_;
  const Case& case_;
  const StepSchedule& schedule_;
  const std::vector<bool> cuts_;
  std::unique_ptr<Device> device_;
  LinkedStages neighbours_;
  comm::StopVotes votes_;
  std::vector<float> values_;
  std::vector<Neighbours::Coming> coming_;  // in a sequence
};

// How much earlier and later than simulated tasks began, at most.
struct Shift {
  double earlier = 0, later = 0;
};
Shift shift_of(const std::vector<PipelineEvent>& events, const std::vector<double>& begins) {
  Shift shift;
  for (std::size_t i = 0; i < events.size(); ++i) {
    shift.earlier = std::max(shift.earlier, events[i].begin - begins[i]);
    shift.later = std::max(shift.later, begins[i] - events[i].begin);
  }
  return shift;
}

int compare(comm::MessageLink& link, const Case& c) {
  const Stages stages = stages_of(link.size(), c);
  const PipelineRun simulated = simulate_pipeline(stages.input);
  std::vector<double> mine = Sleeper(link, c, stages).run();
  // From all to all: they have numbers of tasks of their own.
  std::string text(reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(double));
  std::vector<double> begins;
  double end = 0;
  for (const std::string& one : comm::gather_texts(link, text)) {
    std::vector<double> values(one.size() / sizeof(double));
    std::copy_n(one.data(), one.size(), reinterpret_cast<char*>(values.data()));
    end = std::max(end, values.back());
    begins.insert(begins.end(), values.begin(), values.end() - 1);
  }
  LS_CHECK(begins.size() == simulated.events.size(), "{} tasks, {} simulated", begins.size(),
           simulated.events.size());
  const double ratio = end / simulated.seconds;
  const Shift shift = shift_of(simulated.events, begins);
  if (link.rank() == 0)
    fmt::print(
        "{} ranks, {} tasks: {:.3f} s, simulated {:.3f} s ({:.3f}), {:.1f}% idle; tasks began at "
        "most "
        "{:.1f} ms earlier and {:.1f} ms later\n",
        link.size(), begins.size(), end, simulated.seconds, ratio, 100 * simulated.idle_share(),
        1e3 * shift.earlier, 1e3 * shift.later);
  const bool in_order = shift.earlier < 1e-3 && shift.later <= 0.1 * simulated.seconds;
  return std::abs(ratio - 1) <= 0.1 && in_order ? 0 : 1;
}

double number(std::string_view text) {
  double value = -1;
  std::from_chars(text.data(), text.data() + text.size(), value);
  LS_CHECK(value >= 0, "{} is no number", text);
  return value;
}

int run(std::span<char*> words) {
  const comm::Launch launch = comm::read_launch();
  if (words.size() != 5 || !launch.several()) {
    fmt::print(stderr, "mpirun -np 7 sleeping_ranks CHUNKS SEQUENCES MILLISECONDS MORE\n");
    return 2;
  }
  const Case c{static_cast<std::int64_t>(number(words[1])),
               static_cast<std::int64_t>(number(words[2])), number(words[3]) * 1e-3,
               number(words[4]) * 1e-3};
  const std::unique_ptr<comm::MessageLink> link = comm::open_group(launch, {.timeout_seconds = 10});
  try {
    const int status = compare(*link, c);
    link->close();
    return status;
  } catch (const std::exception& e) {
    if (link->fail(e.what(), 1)) fmt::print(stderr, "error: rank {}: {}\n", link->rank(), e.what());
    return 1;
  }
}

}  // namespace
}  // namespace longstride

int main(int count, char** words) {
  try {
    return longstride::run({words, static_cast<std::size_t>(count)});
  } catch (const std::exception& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return 1;
  }
}
