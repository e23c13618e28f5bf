#include "cli/bench.h"

namespace longstride::cli {

void add_bench(CLI::App& app, Action& action) {
  CLI::App* bench = app.add_subcommand(
      "bench", "measure a training step, the operations or the links between ranks");
  bench->require_subcommand(1);
  add_bench_step(*bench, action);
  add_bench_kernels(*bench, action);
  add_bench_link(*bench, action);
}

}  // namespace longstride::cli
