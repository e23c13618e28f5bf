// longstride: trains language models on contexts of millions of tokens on one device.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <csignal>
#include <exception>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/failure.h"
#include "cli/usage.h"

namespace longstride::cli {

void add_device_option(CLI::App& command, std::string& device) {
  command.add_option("--device", device, "cpu, cuda, or auto: cuda if there is a GPU")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
}

void add_sparse_options(CLI::App& command, AttentionChoice& choice) {
  const auto count = CLI::Range(std::int64_t{0}, std::int64_t{1} << 40);
  command
      .add_option("--attention-layers", choice.layers,
                  "the kind of each layer: dense, window(1024), sparse or sparse(32), with *24 for "
                  "24 layers, separated by commas; repeated if there are fewer")
      ->delimiter(',');
  command
      .add_option("--budget", choice.budget,
                  "sparse: earlier pages that a page of queries attends to, forced ones included")
      ->check(count)
      ->capture_default_str();
  command.add_option("--sinks", choice.sinks, "sparse: first pages that are always attended to")
      ->check(count)
      ->capture_default_str();
  command
      .add_option("--recent", choice.recent,
                  "sparse: last pages before the chunk that are always attended to")
      ->check(count)
      ->capture_default_str();
  command
      .add_option("--union", choice.union_pages,
                  "sparse: the most different earlier pages that a chunk attends to in a layer")
      ->check(count)
      ->capture_default_str();
  command
      .add_option("--summary", choice.summary,
                  "sparse: what pages are selected by: means of keys, or outliers: the keys "
                  "farthest from the page's mean, and the mean of the others; auto: outliers, or "
                  "means if --summary-tokens is the page")
      ->check(CLI::IsMember({"auto", "outliers", "means"}))
      ->capture_default_str();
  command
      .add_option("--summary-tokens", choice.summary_tokens,
                  "sparse: keys per vector of a page's summary; without it the page, at most 128, "
                  "for outliers a quarter of it, beyond 256K tokens half of it")
      ->check(CLI::PositiveNumber);
  command
      .add_option(
          "--scoring", choice.scoring,
          "sparse: mass (attention weights of every head, summed), focus (their fourth powers) or "
          "oomb (weights of every group of heads)")
      ->check(CLI::IsMember({"mass", "focus", "oomb"}))
      ->capture_default_str();
}

SparseLayers apply_sparse_options(const AttentionChoice& choice, std::int64_t page_tokens,
                                  std::int64_t context, ModelConfig& config) {
  SparseLayers sparse = apply_attention(choice, attention_options(), page_tokens, context, config);
  if (!sparse.any() && chooses_selection(choice))
    throw Error("options of sparse attention without sparse layers", "add --attention sparse");
  return sparse;
}

void add_compute_options(CLI::App& command, NumericsChoice& choice) {
  command
      .add_option("--compute", choice.compute,
                  "type of activations: f32, bf16, or auto: bf16 where the device computes in it")
      ->check(CLI::IsMember({"auto", "f32", "bf16"}))
      ->capture_default_str();
  command
      .add_option("--determinism", choice.determinism,
                  "exact: the same bits in every run; fast: kernels that do not repeat may be used")
      ->check(CLI::IsMember({"exact", "fast"}))
      ->capture_default_str();
}

void add_kv_option(CLI::App& command, NumericsChoice& choice) {
  command
      .add_option(
          "--kv-dtype", choice.kv_dtype,
          "type of the pages of keys and values but for the first layer's: fp8, int8, or auto: "
          "that of compute")
      ->check(CLI::IsMember({"auto", "fp8", "int8"}))
      ->capture_default_str();
  command
      .add_option("--attention-kv-dtype", choice.layer_kv_dtypes,
                  "the same of each layer, the first one too: auto, fp8 or int8, with *24 for 24 "
                  "layers, separated by commas; repeated if there are fewer")
      ->delimiter(',');
}

void add_numerics_options(CLI::App& command, NumericsChoice& choice) {
  add_compute_options(command, choice);
  command
      .add_option("--kv-gradient-dtype", choice.kv_gradient_dtype,
                  "type of the gradients of keys and values across chunks; bf16 takes half the "
                  "memory and is rounded stochastically, fp8 and int8 a quarter; layers with short "
                  "windows keep bf16 then")
      ->check(CLI::IsMember({"f32", "bf16", "fp8", "int8"}))
      ->capture_default_str();
  command
      .add_option("--attention-kv-gradient-dtype", choice.layer_kv_gradient_dtypes,
                  "the same of each layer: f32, bf16, fp8 or int8")
      ->delimiter(',');
  command
      .add_option("--hot-pages", choice.hot_pages,
                  "with gradient pages in 8 bits: pages of a sparse layer that keep theirs in f32")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 40))
      ->capture_default_str();
  add_kv_option(command, choice);
}

}  // namespace longstride::cli

int main(int argc, char** argv) {
  using namespace longstride;
  // A file over its size limit, or a closed pipe, should make a call fail, not end the process by a
  // signal.
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
  CLI::App app("longstride trains language models on contexts of millions of tokens on one device.",
               "longstride");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("longstride ") + LONGSTRIDE_VERSION);
  cli::Action action;
  cli::add_train(app, action);
  cli::add_eval(app, action);
  cli::add_generate(app, action);
  cli::add_merge(app, action);
  cli::add_gradients(app, action);
  cli::add_inspect(app, action);
  cli::add_bench(app, action);
  cli::add_plan(app, action);
  cli::add_calibrate(app, action);
  cli::add_demo(app, action);
  // The parser would only say that a subcommand is required.
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  if (argc > 1 && argv[1][0] != '-' &&
      std::find(names.begin(), names.end(), argv[1]) == names.end()) {
    const std::string near = nearest(argv[1], names);
    log_line("error: ", fmt::format("there is no command '{}'", argv[1]));
    log_line("  hint: ", near.empty() ? fmt::format("the commands are {}", fmt::join(names, ", "))
                                      : fmt::format("did you mean {}?", near));
    return 2;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return cli::report_usage(app, e);
  }
  try {
    cli::refuse_several_ranks(app);
    return action();
  } catch (...) {
    const cli::Failure failure = cli::describe_failure(std::current_exception());
    cli::print_failure(failure);
    return failure.status;
  }
}
