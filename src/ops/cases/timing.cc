#include "ops/cases/timing.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "ops/kernel_choices.h"

namespace longstride::ops {

constexpr double kBatchSeconds = 3e-3;

double time_calls(Device& device, const std::function<void()>& queue,
                  const TimingOptions& options) {
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point t) {
    return std::chrono::duration<double>(Clock::now() - t).count();
  };
  Stream& stream = device.stream();
  const auto call = [&] {
    queue();
    stream.synchronize();
  };
  KernelChoices choices;
  {  // chooses kernels as a training run does
    const ChoosingKernels choosing(stream);
    call();
    choices = choosing.choices();
  }
  use_kernel_choices(stream, choices);
  call();
  const auto first = Clock::now();
  call();
  // Short calls are timed in batches, by the stream's clock: in training a call does not wait for
  // the host either.
  const auto batch = static_cast<int>(std::clamp(kBatchSeconds / seconds_since(first), 1.0, 50.0));
  const auto time_batch = [&] {
    double taken = 0;
    stream.record_elapsed(nullptr);
    for (int i = 0; i < batch; ++i) queue();
    stream.record_elapsed(&taken);
    stream.synchronize();
    return taken / batch;
  };
  const auto warming = Clock::now();
  while (seconds_since(warming) < options.warm_up) time_batch();
  std::vector<double> times;
  const auto start = Clock::now();
  while (static_cast<int>(times.size()) < options.least || seconds_since(start) < options.seconds)
    times.push_back(time_batch());
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

}  // namespace longstride::ops
