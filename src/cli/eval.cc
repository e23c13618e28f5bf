// longstride eval --model DIR --tokens FILE: loss and accuracy of every document, without training.
#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/sizes.h"
#include "cli/adapted_model.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/rope_options.h"
#include "cli/token_options.h"
#include "cli/usage.h"
#include "model/model_directory.h"
#include "model/quantize_specs.h"
#include "train/auto_chunk.h"
#include "train/engine.h"
#include "train/evaluation.h"
#include "train/run_memory.h"

namespace longstride::cli {
namespace {

struct Options {
  std::string model, adapter, context, chunk = "auto", page = "128", device = "auto";
  TokenOptions tokens;
  std::int64_t documents = 0;
  NumericsChoice numerics;
  AttentionChoice attention;
  RopeOptions rope;
  bool json = false;
};

std::int64_t longest_document(const Corpus& corpus) {
  constexpr std::int64_t kBlock = std::int64_t{1} << 20;
  std::int64_t longest = 0, begin = 0;
  std::vector<std::int64_t> ends;
  for (std::int64_t at = 0; at < corpus.tokens(); at += kBlock) {
    ends.clear();
    corpus.document_ends(at, std::min(at + kBlock, corpus.tokens()), {}, ends);
    for (const std::int64_t end : ends) {
      longest = std::max(longest, end - begin);
      begin = end;
    }
  }
  return std::max(longest, corpus.tokens() - begin);
}

// Nothing is trained, so there are no gradients.
std::vector<ParameterSpec> frozen(std::vector<ParameterSpec> specs) {
  for (ParameterSpec& spec : specs) spec.trainable = false;
  return specs;
}

// All pages on the device, or as many as fit, and the others in host memory.
StepPlan plan_of(const Engine& engine, const NumericsRecord& numerics, std::int64_t context) {
  const Device& device = engine.device();
  const StepPlanner planner =
      engine.planner(numerics, {.max_tokens = context, .forward_only = true});
  StepPlan all = planner.plan({});
  const std::int64_t free = device_budget(device, std::nullopt, 0).available;
  if (all.memory.total() <= free) return all;
  const std::int64_t host = device.shares_host_memory() ? 0 : device.available_host_bytes();
  const std::int64_t for_pages = free - (all.memory.total() - all.memory.kv_pages);
  const std::string needs =
      fmt::format("{} tokens need {} on the device beside the weights, and {} are free", context,
                  format_bytes(static_cast<double>(all.memory.total())),
                  format_bytes(static_cast<double>(free)));
  const std::string hint = "give a shorter --context, a smaller --chunk or a smaller model";
  if (for_pages < planner.least_page_bytes()) throw Error(needs, hint);
  try {
    return planner.plan({.device = for_pages, .host = host});
  } catch (const Error&) {
    throw Error(
        fmt::format("{}, with {} of host memory", needs, format_bytes(static_cast<double>(host))),
        hint);
  }
}

std::string table(const Evaluation& evaluation) {
  const TargetSums& all = evaluation.all();
  const auto right = std::ranges::count_if(evaluation.documents(), &DocumentResult::all_correct);
  std::string text = fmt::format(
      "loss {:.4f}, accuracy {:.2f}%, {} targets in {} documents; all targets of {} have the "
      "largest logit\n\n{:>10}  {:>10}  {:>8}  {:>8}\n",
      all.mean_loss(), 100 * all.accuracy(), all.targets, evaluation.documents().size(), right,
      "tokens seen", "targets", "loss", "accuracy");
  for (std::size_t k = 0; k < evaluation.by_position().size(); ++k)
    if (const TargetSums& sums = evaluation.by_position()[k]; sums.targets > 0)
      text += fmt::format("{:>10}+  {:>10}  {:>8.4f}  {:>7.2f}%\n", std::int64_t{1} << k,
                          sums.targets, sums.mean_loss(), 100 * sums.accuracy());
  return text;
}

OrderedJson report(const Options& o, const Evaluation& evaluation, double seconds,
                   const NumericsRecord& numerics) {
  OrderedJson json = to_json(evaluation);
  json["model"] = o.model;
  json["adapter"] = o.adapter.empty() ? OrderedJson() : OrderedJson(o.adapter);
  json["tokens"] = o.tokens.file;
  json["documents"] = OrderedJson::array();
  for (const DocumentResult& d : evaluation.documents())
    json["documents"].push_back({{"tokens", d.tokens},
                                 {"targets", d.targets},
                                 {"loss", d.mean_loss()},
                                 {"correct", d.correct},
                                 {"all_correct", d.all_correct()}});
  json["seconds"] = seconds;
  json["numerics"] = to_json(numerics);
  return json;
}

int eval(const Options& o) {
  const AdaptedModel model = open_adapted_model(o.model, o.adapter);
  const std::shared_ptr<const Corpus> corpus = open_tokens(o.tokens, "eval");
  std::int64_t context = std::max<std::int64_t>(2, longest_document(*corpus));
  if (!o.context.empty()) {
    const std::int64_t asked = parse_size(o.context, "--context");
    if (asked < 2) throw Error(fmt::format("--context is {}", asked), "give at least 2 tokens");
    context = std::min(context, asked);
  }
  ModelConfig config =
      config_with_rope(o.rope, model.directory.config(), o.model, o.adapter, context);
  SampleOptions cut;
  cut.context = context;
  cut.pack = Packing::kDocuments;
  cut.vocabulary = config.vocabulary;
  cut.shuffle = false;
  SampleStream samples(*corpus, cut);
  const std::unique_ptr<Device> device = make_device(o.device);
  NumericsChoice choice = o.numerics;
  const std::int64_t page = parse_size(o.page, "--page");
  choice.sparse = apply_sparse_options(o.attention, page, context, config);
  choice.quantize = quantization_of(model.directory.specs());
  const std::vector<ParameterSpec> specs = frozen(model.specs(*device, o.numerics.compute));
  const std::int64_t chunk =
      o.chunk == "auto" ? auto_forward_chunk({config, specs, choice, context, page}, *device)
                        : parse_size(o.chunk, "--chunk");
  const NumericsRecord numerics = choose_numerics(*device, config, chunk, page, choice);
  SequenceLayout{context, numerics.chunk_tokens, numerics.page_tokens, {0}}.validate();
  Engine engine(*device, config, specs);
  StepPlan plan = plan_of(engine, numerics, context);
  model.load(engine.weights());
  engine.prepare_step(numerics, std::move(plan));
  engine.record_losses();
  engine.choose_kernels();
  Evaluation evaluation;
  double seconds = 0;
  const std::int64_t count = o.documents > 0 ? std::min(o.documents, samples.samples_per_epoch())
                                             : samples.samples_per_epoch();
  for (std::int64_t i = 0; i < count; ++i) {
    const Sample sample = samples.sample(i);
    const SequenceResult result =
        engine.evaluate({sample.tokens, sample.targets, sample.document_starts});
    seconds += result.seconds.forward;
    evaluation.add(sample, engine.runner().losses(), engine.runner().correct());
  }
  return print_output(o.json ? dump_json(report(o, evaluation, seconds, numerics)) + "\n"
                             : table(evaluation));
}

}  // namespace

void add_eval(CLI::App& app, Action& action) {
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "eval", "loss and accuracy of a model on documents, by document and by position");
  command->add_option("--model", o->model, "Hugging Face directory")->required();
  add_adapter_option(*command, o->adapter);
  add_token_options(
      *command, o->tokens,
      "token file, text, or a prepared directory, whose eval split is read if it has one");
  command->add_option("--documents", o->documents, "evaluate only the first so many")
      ->check(CLI::PositiveNumber);
  command->add_option("--context", o->context,
                      "cut longer documents into parts of so many tokens, which do not see each "
                      "other; without it none is cut");
  command
      ->add_option("--chunk", o->chunk,
                   "tokens of a chunk, or auto: 1024 on the CPU, at most 16384 on a GPU")
      ->capture_default_str();
  command->add_option("--page", o->page, "tokens of a page")->capture_default_str();
  command
      ->add_option("--attention", o->attention.kind,
                   "model: as its config.json says; sparse: all layers without a window")
      ->check(CLI::IsMember({"model", "sparse"}))
      ->capture_default_str();
  add_rope_options(*command, o->rope);
  add_sparse_options(*command, o->attention);
  command->add_flag("--json", o->json, "print JSON, with every document");
  add_compute_options(*command, o->numerics);
  add_kv_option(*command, o->numerics);
  add_device_option(*command, o->device);
  command->callback([o, &action] { action = [o] { return eval(*o); }; });
}

}  // namespace longstride::cli
