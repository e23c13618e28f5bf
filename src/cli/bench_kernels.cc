// longstride bench kernels: the speed of every operation, through the cases that also test it.
#include <memory>

#include "base/error.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "cli/bench.h"
#include "cli/usage.h"
#include "device/device.h"
#include "ops/cases/run.h"
#include "ops/kernel_libraries.h"

namespace longstride::cli {
namespace {

struct Options {
  std::string json, device = "auto";
  ops::BenchmarkOptions run;
};

int bench_kernels(const Options& o) {
  check_bench_json(o.json);
  const std::unique_ptr<Device> device = make_device(o.device);
  OrderedJson json = {{"device", device->name()},
                      {"threads", thread_count()},
                      {"kernels", ops::kernel_libraries(*device)},
                      {"rows", OrderedJson::array()}};
  for (const ops::BenchmarkRow& row : ops::run_benchmarks(*device, o.run)) {
    log_info("{:<28} {:<44} {:>10.3f} ms {:>9.1f} {}", row.operation, row.shape, row.seconds * 1e3,
             row.rate, row.unit);
    json["rows"].push_back({{"operation", row.operation},
                            {"shape", row.shape},
                            {"seconds", row.seconds},
                            {"rate", row.rate},
                            {"unit", row.unit}});
  }
  if (json["rows"].empty())
    throw Error(
        fmt::format("no operation has '{}' in its name{}", o.run.filter,
                    o.run.shape.empty() ? "" : fmt::format(" and '{}' in its shape", o.run.shape)),
        "longstride bench kernels without --filter and --shape lists them all");
  return write_bench_json(o.json, json);
}

}  // namespace

void add_bench_kernels(CLI::App& bench, Action& action) {
  auto o = std::make_shared<Options>();
  CLI::App* command = bench.add_subcommand("kernels", "every operation at typical shapes");
  command->add_option("--filter", o->run.filter, "only operations whose name contains this");
  command->add_option("--shape", o->run.shape, "only shapes whose label contains this");
  command->add_option("--warm-up", o->run.warm_up, "seconds of calls before the measured ones")
      ->check(finite_number() & CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--seconds", o->run.seconds, "time spent on each")
      ->check(finite_number() & CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--json", o->json, "write the figures to this file instead of stdout")
      ->check(not_empty());
  add_device_option(*command, o->device);
  command->callback([o, &action] { action = [o] { return bench_kernels(*o); }; });
}

}  // namespace longstride::cli
