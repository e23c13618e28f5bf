// Runs cases on a device: as test, gradient check or benchmark.
#pragma once

#include <string>
#include <vector>

#include "ops/cases/case.h"

namespace longstride::ops {

// All arguments as they are after the call, in the problem's order.
using Outcome = std::vector<HostTensor>;

// Copies the arguments to the device, calls the operation once and copies them back. Throws
// InternalError if the call wrote outside of its arguments.
Outcome run_problem(Device& device, const Problem& problem);

// The errors in the outcome, one line each (the worst element of every wrong tensor); empty if it
// is right.
std::vector<std::string> compare_with_reference(const Problem& problem, const Outcome& outcome);

// The same for the gradients: along random directions, and along single coordinates, the outcome's
// gradients must agree with central differences of `loss`. Empty if the problem has no `loss`.
std::vector<std::string> compare_with_differences(const Problem& problem, const Outcome& outcome);

// The same for calls without the problem's optional updates, each in turn and then all: every other
// argument must have the bits of `outcome`, and those left out must be untouched.
std::vector<std::string> compare_without_optional(Device& device, const Problem& problem,
                                                  const Outcome& outcome);

struct BenchmarkRow {
  std::string operation, shape;
  double seconds = 0;  // median of the calls
  double rate = 0;     // in `unit`
  std::string unit;    // "GF/s" or "GB/s"
};

struct BenchmarkOptions {
  std::string filter = {};  // only operations whose name contains this
  std::string shape = {};   // only shapes whose label contains this
  double warm_up = 0;       // seconds of calls before the timed ones: a hot GPU is slower
  double seconds = 0.3;
};

// Times calls for at least `seconds` (and at least 5 calls), after `warm_up` seconds with at least
// one call.
BenchmarkRow run_benchmark(Device& device, const OpCase& op, const Variant& variant,
                           const BenchmarkOptions& options);

// Runs all benchmarks that the options select, one after another.
std::vector<BenchmarkRow> run_benchmarks(Device& device, const BenchmarkOptions& options);

}  // namespace longstride::ops
