#include "ops/cases/run.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "ops/cases/registry.h"
#include "ops/cases/timing.h"

namespace longstride::ops {
namespace {

constexpr std::int64_t kGuardBytes = 256;
constexpr std::byte kGuard{0xA5};
// NaN as a float of any size, -1 as an integer: no output should hold it by chance.
constexpr std::byte kPoison{0xFF};

// The arguments of a problem on a device, each between two guards. Those named by `without` exist,
// but are not passed to the call.
class Placed {
 public:
  Placed(Device& device, const Problem& problem, const std::vector<std::string>& without = {})
      : device_(device), problem_(problem) {
    for (const Argument& a : problem.arguments) {
      const bool is_scratch = a.role == Role::kScratch;
      const std::int64_t scratch = is_scratch ? a.scratch_elements(device.stream()) : 0;
      const std::int64_t size = is_scratch ? scratch * size_of(a.tensor.dtype)
                                           : static_cast<std::int64_t>(a.tensor.bytes.size());
      std::vector<std::byte> image(static_cast<std::size_t>(size + 2 * kGuardBytes), kGuard);
      const bool has_values = a.role != Role::kOutput && !is_scratch;
      if (has_values) {
        std::copy(a.tensor.bytes.begin(), a.tensor.bytes.end(), image.begin() + kGuardBytes);
      } else {
        std::fill_n(image.begin() + kGuardBytes, size, kPoison);
      }
      memory_.push_back(device.allocate(size + 2 * kGuardBytes, a.name));
      device.copy_from_host(memory_.back()->data(), image.data(), size + 2 * kGuardBytes);
      if (is_scratch && scratch == 0) continue;  // absent
      if (std::ranges::find(without, a.name) != without.end()) continue;
      bound_.add(a.name, View(memory_.back()->data() + kGuardBytes, a.tensor.dtype,
                              is_scratch ? Shape{scratch} : a.tensor.shape));
    }
  }

  void queue() { problem_.run(device_.stream(), bound_); }
  void call() {
    queue();
    device_.stream().synchronize();
  }

  Outcome take() {
    Outcome outcome;
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      const Argument& a = problem_.arguments[i];
      std::vector<std::byte> image(static_cast<std::size_t>(memory_[i]->bytes()));
      device_.copy_to_host(image.data(), memory_[i]->data(), memory_[i]->bytes());
      const auto is_guard = [](std::byte b) { return b == kGuard; };
      LS_CHECK(std::all_of(image.begin(), image.begin() + kGuardBytes, is_guard) &&
                   std::all_of(image.end() - kGuardBytes, image.end(), is_guard),
               "the call wrote outside of '{}'", a.name);
      outcome.emplace_back(a.tensor.dtype, a.tensor.shape);
      if (a.role == Role::kScratch) continue;
      std::copy(image.begin() + kGuardBytes, image.end() - kGuardBytes,
                outcome.back().bytes.begin());
    }
    return outcome;
  }

 private:
  Device& device_;
  const Problem& problem_;
  std::vector<std::unique_ptr<Memory>> memory_;
  Bound bound_;
};

std::vector<double> in_double(const HostTensor& t) {
  std::vector<double> x(static_cast<std::size_t>(t.elements()));
  for (std::int64_t i = 0; i < t.elements(); ++i) x[static_cast<std::size_t>(i)] = t.get(i);
  return x;
}

Values values_of(const Problem& problem) {
  Values values;
  for (const Argument& a : problem.arguments) values[a.name] = in_double(a.tensor);
  return values;
}

std::size_t index_of(const Problem& problem, const std::string& name) {
  for (std::size_t i = 0; i < problem.arguments.size(); ++i) {
    if (problem.arguments[i].name == name) return i;
  }
  LS_CHECK(false, "no argument '{}'", name);
  return 0;
}

}  // namespace

Outcome run_problem(Device& device, const Problem& problem) {
  Placed placed(device, problem);
  placed.call();
  return placed.take();
}

std::vector<std::string> compare_with_reference(const Problem& problem, const Outcome& outcome) {
  std::vector<std::string> wrong;
  Values expected = values_of(problem);
  problem.reference(expected);
  for (std::size_t i = 0; i < outcome.size(); ++i) {
    const Argument& a = problem.arguments[i];
    if (a.role == Role::kScratch) continue;
    if (a.role == Role::kInput) {
      if (outcome[i].bytes != a.tensor.bytes) wrong.push_back(a.name + ": the input was changed");
      continue;
    }
    const std::vector<double>& want = expected[a.name];
    LS_CHECK(static_cast<std::int64_t>(want.size()) == a.tensor.elements(), "reference of '{}'",
             a.name);
    double scale = a.magnitude, worst = 0;
    std::size_t at = want.size();
    for (double w : want) scale = std::max(scale, std::fabs(w));
    for (std::size_t k = 0; k < want.size(); ++k) {
      const double got = outcome[i].get(static_cast<std::int64_t>(k));
      const double error = got == want[k] ? 0 : std::fabs(got - want[k]);
      // Written so that a NaN is always wrong, and the first one is reported.
      if (!(error <= a.tolerance * scale) && !(error <= worst) && !std::isnan(worst)) {
        worst = error;
        at = k;
      }
    }
    if (at < want.size()) {
      wrong.push_back(fmt::format(
          "{}: element {} of {} is {:.9g}, should be {:.9g} (off by {:.2e} of {:.3g}, allowed "
          "{:.1e})",
          a.name, at, a.tensor.shape.to_string(), outcome[i].get(static_cast<std::int64_t>(at)),
          want[at], worst / scale, scale, a.tolerance));
    }
  }
  return wrong;
}

std::vector<std::string> compare_with_differences(const Problem& problem, const Outcome& outcome) {
  std::vector<std::string> wrong;
  if (!problem.loss) return wrong;
  constexpr double kStep = 1e-4;
  constexpr int kDirections = 3, kCoordinates = 4;
  const Values values = values_of(problem);
  Random random(2);
  for (const auto& [input, output] : problem.gradients) {
    const std::size_t index = index_of(problem, output);
    const bool added = problem.arguments[index].role == Role::kUpdate;
    std::vector<double> gradient = in_double(outcome[index]);
    double norm = 0;
    for (std::size_t k = 0; k < gradient.size(); ++k) {
      if (added) gradient[k] -= values.at(output)[k];
      norm += gradient[k] * gradient[k];
    }
    const auto n = static_cast<double>(gradient.size());
    // fp32 errors of the outcome; those of an addition are relative to the previous value (about
    // 1).
    const double allowed = 2e-5 * std::max(std::sqrt(norm), problem.arguments[index].magnitude) +
                           (added ? 1e-6 * std::sqrt(n) : 1e-9);
    for (int trial = 0; trial < kDirections + kCoordinates; ++trial) {
      std::vector<double> direction(gradient.size(), 0.0);
      if (trial < kDirections) {
        for (double& d : direction) d = (random.next_u32() & 1u) != 0 ? 1.0 : -1.0;
      } else {
        direction[random.below(direction.size())] = 1.0;
      }
      double predicted = 0;
      Values plus = values, minus = values;
      for (std::size_t k = 0; k < direction.size(); ++k) {
        predicted += gradient[k] * direction[k];
        plus[input][k] += kStep * direction[k];
        minus[input][k] -= kStep * direction[k];
      }
      const double measured = (problem.loss(plus) - problem.loss(minus)) / (2 * kStep);
      if (!(std::fabs(predicted - measured) <= allowed)) {
        wrong.push_back(
            fmt::format("{}: derivative {:.9g}, differences of {} give {:.9g} (allowed {:.1e})",
                        output, predicted, input, measured, allowed));
        break;
      }
    }
  }
  return wrong;
}

std::vector<std::string> compare_without_optional(Device& device, const Problem& problem,
                                                  const Outcome& outcome) {
  std::vector<std::string> wrong;
  std::vector<std::vector<std::string>> choices;
  for (const std::string& name : problem.optional) choices.push_back({name});
  if (problem.optional.size() > 1) choices.push_back(problem.optional);
  for (const std::vector<std::string>& without : choices) {
    Placed placed(device, problem, without);
    placed.call();
    const Outcome less = placed.take();
    for (std::size_t i = 0; i < less.size(); ++i) {
      const Argument& a = problem.arguments[i];
      if (a.role == Role::kScratch) continue;
      const bool left_out = std::ranges::find(without, a.name) != without.end();
      if (less[i].bytes != (left_out ? a.tensor.bytes : outcome[i].bytes))
        wrong.push_back(fmt::format("{}: {} without {}", a.name,
                                    left_out ? "changed" : "other bits", without.front()));
    }
  }
  return wrong;
}

BenchmarkRow run_benchmark(Device& device, const OpCase& op, const Variant& variant,
                           const BenchmarkOptions& options) {
  const Problem problem = variant.make();
  Placed placed(device, problem);
  const double seconds = time_calls(device, [&] { placed.queue(); },
                                    {.warm_up = options.warm_up, .seconds = options.seconds});
  const double work = problem.flops > 0 ? problem.flops : problem.bytes;
  return {op.name, variant.label, seconds, work / seconds / 1e9,
          problem.flops > 0 ? "GF/s" : "GB/s"};
}

std::vector<BenchmarkRow> run_benchmarks(Device& device, const BenchmarkOptions& options) {
  std::vector<BenchmarkRow> rows;
  const auto contains = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  for (const OpCase& op : op_cases()) {
    if (!contains(op.name, options.filter)) continue;
    const bool in_bf16 = device.computes_in_bf16();
    for (const Variant& variant : in_bf16 ? op.benchmarks16 : op.benchmarks)
      if (contains(variant.label, options.shape))
        rows.push_back(run_benchmark(device, op, variant, options));
  }
  return rows;
}

}  // namespace longstride::ops
