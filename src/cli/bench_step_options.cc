#include "cli/bench_step_options.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/sizes.h"
#include "cli/link_rate.h"
#include "cli/ranks_report.h"
#include "cli/usage.h"
#include "model/presets.h"

namespace longstride::cli {
namespace {

void add_shape_options(CLI::App& command, const std::shared_ptr<StepBenchOptions>& options) {
  command.add_option("--preset", options->preset, "built-in shape, e.g. qwen2.5-0.5b")->required();
  command.add_option("--context", options->context, "tokens of the sequence, e.g. 16K")->required();
  command.add_option("--document", options->document,
                     "tokens of a document; the sequence is packed with them. All: one document");
  command
      .add_option(
          "--tokens", options->tokens,
          "random, or topics: 2048 tokens at a time from one of 64 small vocabularies, so that "
          "sparse layers select alike pages")
      ->check(CLI::IsMember({"random", "topics"}))
      ->capture_default_str();
  command.add_option("--chunk", options->chunk,
                     "tokens of a chunk, or auto: what is fastest by prediction, as in training "
                     "(the default with --plan auto); else 1024 on the CPU, 4096 on a GPU");
  command.add_option("--page", options->page, "tokens of a page")->capture_default_str();
  command
      .add_option("--attention", options->attention,
                  "of all layers: dense, window with --window, or sparse")
      ->check(CLI::IsMember({"dense", "window", "sparse"}))
      ->capture_default_str();
  command.add_option("--window", options->window, "tokens a query sees, itself included");
  add_sparse_options(command, options->sparse);
  command.add_option("--layers", options->layers, "use only so many layers")
      ->check(CLI::PositiveNumber);
  command
      .add_option("--stages", options->stages,
                  "cut the layers into so many stages of a pipeline, of equal work, and run one")
      ->check(CLI::PositiveNumber);
  command
      .add_option("--stage", options->stage,
                  "the stage, from 0; in place of the others it gets random inputs and gradients")
      ->check(CLI::NonNegativeNumber);
  add_link_rate(command, options->link_rate);
  command.add_option("--svg", options->svg,
                     "with --stages: draw the simulated schedule into this file");
  command
      .add_option("--keep-chunks", options->keep_chunks, "last chunks that keep their activations")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command
      .add_option(
          "--plan", options->plan,
          "recompute: the backward pass recomputes all activations of earlier chunks; auto: "
          "those that take longest to recompute stay in the device's memory or go to host memory, "
          "and pages go there where that saves time; or a file by longstride plan --out")
      ->check(not_empty())
      ->capture_default_str();
  command.add_flag("--rebuild-feed-forward", options->rebuild_feed_forward,
                   "compute gate and up again in the backward pass: less workspace");
}

void add_memory_options(CLI::App& command, const std::shared_ptr<StepBenchOptions>& options) {
  command.add_option("--gpu-memory", options->gpu_memory,
                     "with --plan auto: bytes of the device for everything");
  command.add_option("--page-memory", options->page_memory,
                     "bytes on the device for pages, or least, or streaming (what it takes to move "
                     "pages beside the arithmetic); the others go to host memory and disk");
  command.add_option("--host-memory", options->host_memory,
                     "bytes of host memory for pages, without it as many as there are; and for "
                     "--optimizer disk what they leave of it, without it none");
  command.add_option("--activation-memory", options->activation_memory,
                     "with --plan auto: bytes of host memory that activations may take, of what "
                     "pages leave; without it half of it. They are copied there and back beside "
                     "the arithmetic");
  command.add_option("--disk-memory", options->disk_memory,
                     "bytes of disk for pages, without it none; and for --optimizer disk what "
                     "they leave of it, without it as many as there are");
  command.add_option("--disk-path", options->disk_path, "the directory for what goes to disk");
}

}  // namespace

void add_options(CLI::App& command, const std::shared_ptr<StepBenchOptions>& options) {
  add_shape_options(command, options);
  add_memory_options(command, options);
  command.add_option("--dtype", options->dtype, "of the weights: f32 on the CPU, bf16 on a GPU")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}));
  command
      .add_option("--lora", options->lora,
                  "train adapters of this rank on all projections, and nothing else")
      ->check(CLI::Range(1, 4096));
  command
      .add_option("--quantize", options->quantize,
                  "the projections: nf4 or int8; they are not trained then")
      ->check(CLI::IsMember({"nf4", "int8"}));
  command.add_option("--repeat", options->repeat, "runs; the fastest counts")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  command
      .add_option("--update", options->updates, "updates by the optimizer after the step; timed")
      ->check(CLI::Range(1, 1'000'000));
  command
      .add_option("--optimizer", options->optimizer,
                  "where its state is in --update: device (the default), host or disk")
      ->check(CLI::IsMember({"device", "host", "disk"}));
  command
      .add_option("--optimizer-state", options->optimizer_state,
                  "its moments in --update: fp32 (the default) or 8bit")
      ->check(CLI::IsMember({"fp32", "8bit"}));
  command.add_flag("--no-masters", options->no_masters,
                   "in --update: no fp32 masters, weights are rounded stochastically");
  command.add_flag("--profile", options->profile,
                   "one more run that notes every kernel: where the time goes, how much is idle");
  command
      .add_option("--trace", options->trace,
                  "write what ran when in the last run to this file, for ui.perfetto.dev; the "
                  "figures are then that run's")
      ->check(not_empty());
  command.add_option("--json", options->json, "write the figures to this file instead of stdout")
      ->check(not_empty());
  add_numerics_options(command, options->numerics);
  add_device_option(command, options->device);
}

void check_options(const StepBenchOptions& o) {
  for (const auto& [option, given] : {std::pair("--optimizer", !o.optimizer.empty()),
                                      std::pair("--optimizer-state", !o.optimizer_state.empty()),
                                      std::pair("--no-masters", o.no_masters)})
    if (given && o.updates == 0)
      throw Error(fmt::format("{} without --update", option), "add --update 3, for instance");
  const bool optimizer_on_disk = o.optimizer == "disk";
  if (optimizer_on_disk && o.disk_path.empty())
    throw Error("--optimizer disk without --disk-path", "name a directory on a local disk");
  for (const auto& [option, value] :
       {std::pair("--host-memory", &o.host_memory), std::pair("--disk-memory", &o.disk_memory)})
    if (!value->empty() && o.page_memory.empty() && !optimizer_on_disk && o.plan != "auto")
      throw Error(fmt::format("{} without --page-memory, --plan auto or --optimizer disk", option),
                  "all pages are on the device: add --page-memory least, for instance");
  if (o.plan != "auto" && o.plan != "recompute") {
    if (!std::filesystem::exists(o.plan))
      throw Error(fmt::format("--plan {}: there is no such file", o.plan),
                  "give auto, recompute, or a file by longstride plan --out");
    if (!o.page_memory.empty())
      throw Error("both --page-memory and a plan from a file", "leave one of them out");
    if (o.keep_chunks != StepBenchOptions{}.keep_chunks || o.rebuild_feed_forward)
      throw Error(fmt::format("both {} and a plan from a file",
                              o.rebuild_feed_forward ? "--rebuild-feed-forward" : "--keep-chunks"),
                  "leave one of them out: the plan says what is kept");
  }
  if (o.stages == 1 && !o.svg.empty())
    throw Error("--svg without --stages", "add --stages 4, for instance");
  check_schedule_file(o.svg);
  if (o.stages == 1 && !o.link_rate.empty())
    throw Error("--link-rate without --stages", "add --stages 4, for instance");
  if (o.stages > 1 && o.plan == "auto" && (o.chunk.empty() || o.chunk == "auto"))
    throw Error("--stages with --plan auto, and no --chunk",
                "add --chunk 4096, for instance: all stages have the same");
  if (!o.activation_memory.empty() && o.plan != "auto")
    throw Error("--activation-memory without --plan auto", "add --plan auto");
  if (!o.activation_memory.empty() && !o.page_memory.empty())
    throw Error("both --activation-memory and --page-memory",
                "leave --page-memory out: the plan decides where pages go");
  if (!o.gpu_memory.empty() && o.plan != "auto")
    throw Error("--gpu-memory without --plan auto",
                "add --plan auto, or give --page-memory, the bytes for pages alone");
  if (!o.disk_path.empty() && o.disk_memory.empty() && !optimizer_on_disk)
    throw Error("--disk-path without --disk-memory or --optimizer disk",
                "nothing goes to disk: add --disk-memory 100GiB, for instance");
  const auto full = [](const std::string& name) {
    return std::filesystem::absolute(name).lexically_normal();
  };
  if (!o.trace.empty() && !o.json.empty() && full(o.trace) == full(o.json))
    throw Error(fmt::format("--trace and --json are both {}", o.json), "name two files");
}

void warn_of_unused(const StepBenchOptions& o, const StepMemory& m) {
  if (o.page_memory.empty()) return;
  if (m.host_pages + m.disk_pages == 0)
    log_warning("--page-memory {} holds all pages: none goes to host memory or disk",
                o.page_memory);
  else if (m.disk_pages == 0 && !o.disk_memory.empty() && o.optimizer != "disk")
    log_warning(
        "--disk-memory {}: host memory holds all pages that leave the device, so none goes "
        "to disk; give a smaller --host-memory to use it",
        o.disk_memory);
}

BenchShape shape_of(const StepBenchOptions& o) {
  ModelConfig config = find_preset(o.preset);
  if (o.layers > config.layers)
    throw Error(fmt::format("--layers is {}, but {} has {}", o.layers, o.preset, config.layers),
                "leave it out to use all of them");
  if (o.layers > 0) config.layers = o.layers;
  std::int64_t window = 0;
  if (o.attention == "window") {
    if (o.window.empty())
      throw Error("--attention window needs its size",
                  "add --window TOKENS, for instance --window 1024");
    window = parse_size(o.window, "--window");
    if (window < 1) throw Error("--window is 0", "a query sees at least itself: give 1 or more");
  } else if (!o.window.empty()) {
    throw Error("--window without --attention window", "add --attention window");
  }
  config.windows.assign(static_cast<std::size_t>(config.layers), window);
  AttentionChoice choice = o.sparse;
  if (o.attention == "sparse") choice.kind = "sparse";
  if (o.attention != "dense" && !o.sparse.layers.empty())
    throw Error(fmt::format("both --attention {} and --attention-layers", o.attention),
                "leave one of them out");
  SparseLayers sparse = apply_sparse_options(choice, parse_size(o.page, "--page"),
                                             parse_size(o.context, "--context"), config);
  return {std::move(config), std::move(sparse)};
}

std::optional<std::int64_t> disk_memory(const StepBenchOptions& o) {
  if (o.disk_memory.empty()) return std::nullopt;
  return parse_size(o.disk_memory, "--disk-memory");
}

UpdateBench update_of(const StepBenchOptions& o, const StepMemory& step) {
  UpdateBench update{o.updates, o.optimizer.empty() ? "device" : o.optimizer};
  update.state.place = o.optimizer == "disk"   ? StatePlace::kDisk
                       : o.optimizer == "host" ? StatePlace::kHost
                                               : StatePlace::kDevice;
  if (!o.optimizer_state.empty()) update.options.state = o.optimizer_state;
  update.options.masters = !o.no_masters;
  if (o.optimizer != "disk") return update;
  update.state.disk_directory = o.disk_path;
  if (!o.host_memory.empty())
    update.state.host_bytes =
        std::max<std::int64_t>(0, parse_size(o.host_memory, "--host-memory") - step.host());
  if (const auto disk = disk_memory(o)) update.disk_bytes = *disk - step.disk();
  return update;
}

std::vector<std::int64_t> document_starts(const StepBenchOptions& o, std::int64_t context) {
  const std::int64_t length = o.document.empty() ? context : parse_size(o.document, "--document");
  if (length < 2) throw Error(fmt::format("--document is {}", length), "give at least 2 tokens");
  std::vector<std::int64_t> starts;
  for (std::int64_t at = 0; at < context; at += length) starts.push_back(at);
  return starts;
}

}  // namespace longstride::cli
