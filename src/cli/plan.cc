// longstride plan: what training on each of several contexts needs and how long a step takes, on
// this machine or another, before anything runs.
#include <filesystem>
#include <map>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/output_file.h"
#include "base/sizes.h"
#include "base/thread_pool.h"
#include "cli/commands.h"
#include "cli/config_words.h"
#include "cli/link_rate.h"
#include "cli/output.h"
#include "cli/plan_report.h"
#include "cli/ranks_report.h"
#include "cli/usage.h"
#include "plan/machines.h"
#include "plan/memory_map_svg.h"
#include "plan/plan_file.h"
#include "plan/plan_page.h"
#include "plan/this_machine.h"

namespace longstride::cli {
namespace {

struct Options {
  std::string preset, model, chunk, machine, gpu_memory, host_memory, disk,
      attention = "model", device = "auto", svg, html, out, quantize, link_rate;
  std::int64_t lora = 0, ranks = 0;  // ranks 0: not given
  bool device_given = false;
  std::vector<std::string> contexts;
  double price = 0;
  bool longest = false, json = false;
  NumericsChoice numerics;
  AttentionChoice sparse;
  std::vector<std::pair<std::string, std::string>> settings;  // of kSettings, those that are given
};

// Options that a configuration file has settings for.
constexpr std::pair<const char*, const char*> kSettings[] = {
    {"--attention", "attention.kind"},
    {"--attention-layers", "attention.layers"},
    {"--budget", "attention.budget"},
    {"--sinks", "attention.sinks"},
    {"--recent", "attention.recent"},
    {"--union", "attention.union_pages"},
    {"--summary", "attention.summary"},
    {"--summary-tokens", "attention.summary_tokens"},
    {"--scoring", "attention.scoring"},
    {"--compute", "numerics.compute"},
    {"--determinism", "numerics.determinism"},
    {"--kv-gradient-dtype", "numerics.kv_gradient_dtype"},
    {"--kv-dtype", "numerics.kv_dtype"},
    {"--attention-kv-dtype", "attention.kv_dtype"},
    {"--attention-kv-gradient-dtype", "attention.kv_gradient_dtype"},
    {"--hot-pages", "numerics.hot_pages"},
    {"--quantize", "model.quantize"},
    {"--lora", "lora.rank"}};

// The device that is planned for, and its rates.
struct Target {
  std::unique_ptr<Device> device;
  MachineRates rates;
};

Target target_of(const Options& o, const std::string& device) {
  if (o.machine.empty()) {
    Target here{make_device(device), {}};
    here.rates = rates_of_this_machine(*here.device);
    return here;
  }
  if (o.device_given)
    throw Error("both --machine and --device", "leave --device out: the machine has its own");
  const bool is_file = o.machine.ends_with(".json") || std::filesystem::exists(o.machine);
  Target there{nullptr, is_file ? read_machine_rates(o.machine) : find_machine(o.machine)};
  const auto replace = [](std::int64_t& bytes, const std::string& given, const char* option) {
    if (!given.empty()) bytes = parse_size(given, option);
  };
  replace(there.rates.device_bytes, o.gpu_memory, "--gpu-memory");
  replace(there.rates.host_bytes, o.host_memory, "--host-memory");
  there.device =
      make_shapes_device(there.rates.compute == DType::kBF16 ? DeviceKind::kCuda : DeviceKind::kCpu,
                         {there.rates.name, there.rates.device_bytes, there.rates.host_bytes});
  return there;
}

// Of a file; of a model alone what the options say, without what depends on the device.
TrainConfig read_config(const Options& o, const ConfigWords& words) {
  const int sources =
      (words.config.empty() ? 0 : 1) + (o.preset.empty() ? 0 : 1) + (o.model.empty() ? 0 : 1);
  if (sources != 1)
    throw Error(sources == 0 ? "no model is given" : "more than one model is given",
                "give one of CONFIG.toml, --preset NAME and --model DIR");
  if (!words.config.empty()) {
    if (!o.settings.empty())
      throw Error(fmt::format("{} with a configuration file", o.settings.front().first),
                  fmt::format("write --{}=VALUE", o.settings.front().second));
    return load_train_config(words.config, words.overrides);
  }
  if (!words.overrides.empty())
    throw Error(fmt::format("--{} without a configuration file", words.overrides.front()),
                "give CONFIG.toml, or use the options of longstride plan --help");
  TrainConfig config;
  config.model.preset = o.preset;
  config.model.path = o.model;
  config.model.quantize = o.quantize;
  if (o.lora > 0)
    config.lora.rank = o.lora;
  else if (!o.quantize.empty())
    config.model.freeze = {"*_proj.weight"};
  config.numerics = {o.numerics.compute, o.numerics.kv_gradient_dtype, o.numerics.determinism,
                     o.numerics.kv_dtype, o.numerics.hot_pages};
  config.attention = o.sparse;
  config.attention.kind = o.attention;
  config.attention.kv_dtype = o.numerics.layer_kv_dtypes;
  config.attention.kv_gradient_dtype = o.numerics.layer_kv_gradient_dtypes;
  return config;
}

TrainConfig complete(TrainConfig config, const Options& o, const ConfigWords& words,
                     const Target& target) {
  if (words.config.empty())
    config.model.dtype = target.device->runs_on() == DeviceKind::kCuda ? "bf16" : "f32";
  if (o.chunk == "auto")
    config.training.chunk.reset();
  else if (!o.chunk.empty())
    config.training.chunk = parse_size(o.chunk, "--chunk");
  constexpr std::int64_t kMostChunk = std::int64_t{1} << 30;  // as training.chunk
  if (config.training.chunk.value_or(0) > kMostChunk)
    throw Error(fmt::format("--chunk {} is too long: at most 1G", o.chunk),
                "give --chunk 4096, for instance");
  if (const std::optional<std::int64_t>& chunk = config.training.chunk;
      chunk && (*chunk < config.training.page || *chunk % config.training.page != 0))
    throw Error(fmt::format("a chunk of {} tokens is not a multiple of the page of {}", *chunk,
                            config.training.page),
                "give --chunk 4096, for instance");
  // Of another machine the memory is its own; of this one these are limits.
  if (o.machine.empty()) {
    if (!o.gpu_memory.empty()) config.memory.gpu = parse_size(o.gpu_memory, "--gpu-memory");
    if (!o.host_memory.empty()) config.memory.host = parse_size(o.host_memory, "--host-memory");
  } else {
    config.memory.gpu.reset();
    config.memory.host.reset();
  }
  if (!o.disk.empty()) {
    config.memory.disk = parse_size(o.disk, "--disk");
    if (config.memory.disk_path.empty()) config.memory.disk_path = ".";
  }
  return config;
}

std::vector<std::int64_t> contexts_of(const Options& o, const TrainConfig& config, Target& target) {
  std::vector<std::int64_t> contexts;
  for (const std::string& text : o.contexts) {
    contexts.push_back(parse_size(text, "--context"));
    if (contexts.back() < 2)
      throw Error(fmt::format("--context {}: there is nothing to predict", text),
                  "give at least 2 tokens");
    constexpr std::int64_t kMostTokens = 1'000'000'000'000;  // as training.context
    if (contexts.back() > kMostTokens)
      throw Error(fmt::format("--context {} is too long", text),
                  fmt::format("give at most {} tokens", kMostTokens));
  }
  if (o.longest) {
    const std::optional<std::int64_t> longest =
        longest_context(config, *target.device, target.rates);
    if (!longest)
      throw Error(fmt::format("not even one chunk fits on {}", target.rates.name),
                  "give --context for what to change, or choose a smaller model");
    contexts.push_back(*longest);
  }
  if (contexts.empty() && config.training.context > 0) contexts = {config.training.context};
  if (contexts.empty())
    throw Error("no context is given", "add --context 64K,128K,1M, for instance, or --longest");
  return contexts;
}

void check_outputs(const Options& o) {
  std::map<std::filesystem::path, const char*> files;
  for (const auto& [option, name] :
       {std::pair("--out", &o.out), std::pair("--svg", &o.svg), std::pair("--html", &o.html)}) {
    if (name->empty()) continue;
    const auto [other, added] =
        files.emplace(std::filesystem::absolute(*name).lexically_normal(), option);
    if (!added)
      throw Error(fmt::format("{} and {} are both {}", other->second, option, *name),
                  "name two files");
  }
  const auto begins = [](const char* text) {
    return [text](std::string_view head) { return head.starts_with(text); };
  };
  if (!o.out.empty()) check_output_file(o.out, {"--out", "a plan", begins_as_plan_file});
  if (o.ranks > 0)
    check_schedule_file(o.svg);
  else if (!o.svg.empty())
    check_output_file(o.svg, {"--svg", "a memory map", begins(kMemoryMapSvgBegin)});
  if (!o.html.empty())
    check_output_file(o.html, {"--html", "a page about plans", begins(kPlanPageBegin)});
}

// How the user named it.
std::string model_name(const Options& o, const TrainConfig& config) {
  if (!o.preset.empty()) return o.preset;
  if (!o.model.empty()) return o.model;
  return config.model.preset.empty() ? config.model.path.string() : config.model.preset;
}

// Files show the longest context that fits; null if none does.
template <class Outlooks>
auto shown_of(const Options& o, const Outlooks& outlooks, const auto& context_of) {
  const typename Outlooks::value_type* shown = nullptr;
  for (const auto& outlook : outlooks)
    if (outlook.fits() && (shown == nullptr || context_of(outlook) > context_of(*shown)))
      shown = &outlook;
  if (shown == nullptr && !(o.svg.empty() && o.out.empty()))
    throw Error("none of the contexts fits, so there is nothing to write",
                "see what longstride plan says without --svg and --out");
  return shown;
}

int plan_on_ranks(const Options& o, const ConfigWords& words, TrainConfig config, Target& target) {
  RanksReport report{.model = model_name(o, config),
                     .config = words.config.empty() ? "CONFIG.toml" : words.config,
                     .settings = words.overrides,
                     .names_context = !words.config.empty() && !o.contexts.empty(),
                     .names_chunk = !words.config.empty() && !o.chunk.empty(),
                     .machine = target.rates,
                     .link = link_of(o.link_rate),
                     .price = o.price,
                     .outlooks = {}};
  for (const std::int64_t context : contexts_of(o, config, target)) {
    config.training.context = context;
    report.outlooks.push_back(plan_ranks_and_chunk(config, plan_shapes(config, *target.device),
                                                   *target.device, target.rates,
                                                   {o.ranks, report.link}));
  }
  const auto context_of = [](const PipelineOutlook& outlook) { return outlook.context; };
  const PipelineOutlook* shown = shown_of(o, report.outlooks, context_of);
  if (!o.svg.empty()) write_file_atomic(o.svg, picture_of(report, *shown));
  if (!o.html.empty()) write_file_atomic(o.html, report_page(report));
  return print_output(o.json ? dump_json(report_to_json(report), 2) + "\n" : report_text(report));
}

void check_ranks(const Options& o) {
  if (o.ranks == 0 && !o.link_rate.empty())
    throw Error("--link-rate without --ranks", "add --ranks 8, for instance");
  if (o.ranks == 0) return;
  if (!o.out.empty())
    throw Error("--out with --ranks: every stage has a plan of its own",
                "leave --out out; --svg draws the schedule");
  if (o.longest) throw Error("--longest with --ranks", "give --context 256K,1M, for instance");
}

int run_plan(const Options& o, const std::vector<std::string>& extras) {
  check_ranks(o);
  check_outputs(o);
  const ConfigWords words = sort_words(extras, "plan");
  TrainConfig config = read_config(o, words);
  // As `train`: rates and scratch of a CPU depend on it.
  if (config.device.threads > 0) set_thread_count(static_cast<int>(config.device.threads));
  Target target = target_of(o, o.device_given ? o.device : config.device.name);
  config = complete(std::move(config), o, words, target);
  if (o.ranks > 0) return plan_on_ranks(o, words, std::move(config), target);
  PlanReport report{
      .model = model_name(o, config), .machine = target.rates, .price = o.price, .outlooks = {}};
  for (const std::int64_t context : contexts_of(o, config, target)) {
    config.training.context = context;
    report.outlooks.push_back(make_outlook(config, *target.device, target.rates));
  }
  const auto context_of = [](const Outlook& outlook) { return outlook.context(); };
  const Outlook* shown = shown_of(o, report.outlooks, context_of);
  if (!o.svg.empty()) write_file_atomic(o.svg, picture_of(report, *shown));
  if (!o.out.empty())
    write_plan_file(o.out, shown->plan.model.config, shown->plan.numerics, *shown->plan.step);
  if (!o.html.empty()) write_file_atomic(o.html, report_page(report));
  return print_output(o.json ? dump_json(report_to_json(report), 2) + "\n" : report_text(report));
}

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "plan",
      "what contexts need and how long a step takes: plan CONFIG.toml, or --preset, or "
      "--model");
  command->allow_extras();
  command->add_option("--preset", o->preset, "built-in shape, e.g. qwen2.5-7b");
  command->add_option("--model", o->model, "a Hugging Face directory")->check(not_empty());
  command
      ->add_option("--context", o->contexts,
                   "tokens of a sequence, several separated by commas: 64K,128K,1M")
      ->delimiter(',');
  command->add_flag("--longest", o->longest, "also the longest context that fits");
  command->add_option(
      "--chunk", o->chunk,
      "tokens of a chunk; auto or without it what is fastest, as training.chunk = \"auto\"");
  command->add_option("--attention", o->attention, "model: as the model says; or sparse")
      ->check(CLI::IsMember({"model", "sparse"}))
      ->capture_default_str();
  add_sparse_options(*command, o->sparse);
  add_numerics_options(*command, o->numerics);
  command
      ->add_option("--quantize", o->quantize,
                   "the projections: nf4 or int8; they are not trained then")
      ->check(CLI::IsMember({"nf4", "int8"}));
  command
      ->add_option("--lora", o->lora,
                   "train adapters of this rank on all projections, and nothing else")
      ->check(CLI::Range(1, 4096));
  command
      ->add_option("--machine", o->machine,
                   "plan for another machine: a name (h200, h100, ...) or a file of rates by "
                   "longstride calibrate --out")
      ->check(not_empty());
  command
      ->add_option("--ranks", o->ranks,
                   "plan for so many processes, each with such a device: how they are cut into "
                   "stages, data groups and heads, and the simulated step")
      ->check(CLI::Range(1, 4096));
  add_link_rate(*command, o->link_rate);
  command->add_option("--gpu-memory", o->gpu_memory, "bytes of the device for everything");
  command->add_option("--host-memory", o->host_memory,
                      "bytes of host memory for what leaves the device");
  command->add_option("--disk", o->disk, "bytes of disk for what leaves host memory");
  command->add_option("--price", o->price, "of the machine, an hour: prints what tokens cost")
      ->check(finite_number() & CLI::PositiveNumber);
  command->add_flag("--json", o->json, "print JSON instead of tables");
  command
      ->add_option("--svg", o->svg,
                   "draw the memory of the longest context that fits; with --ranks its schedule")
      ->check(not_empty());
  command
      ->add_option("--out", o->out,
                   "write the plan of the longest context that fits, for bench step --plan FILE")
      ->check(not_empty());
  command->add_option("--html", o->html, "write a page with the table and all pictures")
      ->check(not_empty());
  add_device_option(*command, o->device);
  command->callback([o, command, &action] {
    o->device_given = command->count("--device") > 0;
    for (const auto& [option, setting] : kSettings)
      if (command->count(option) > 0) o->settings.emplace_back(option, setting);
    action = [o, command] { return run_plan(*o, command->remaining()); };
  });
}

}  // namespace longstride::cli
