// longstride gradients --model DIR --tokens FILE --out grads.safetensors: loss on stdout as JSON,
// gradients under Hugging Face names.
#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/output_file.h"
#include "base/sizes.h"
#include "cli/adapted_model.h"
#include "cli/commands.h"
#include "cli/compare_gradients.h"
#include "cli/output.h"
#include "cli/rope_options.h"
#include "cli/selected_pages.h"
#include "cli/token_options.h"
#include "cli/usage.h"
#include "data/sample_stream.h"
#include "model/model_directory.h"
#include "model/quantize_specs.h"
#include "train/engine.h"

namespace longstride::cli {
namespace {

constexpr const char* kMadeBy = "longstride gradients";  // identifies the file as ours

struct Options {
  std::string model, adapter, out, chunk = "1024", page = "128", device = "auto";
  TokenOptions tokens;
  std::int64_t keep_chunks = 1, first_position = 0;
  bool rebuild_feed_forward = false, compare_dense = false, compare_wide = false;
  NumericsChoice numerics;
  AttentionChoice attention;
  RopeOptions rope;
  std::string lists, picture, losses;
};

// The whole token file as one sequence.
Sample read_sequence(const Options& o, std::int64_t vocabulary) {
  const std::shared_ptr<const Corpus> corpus = open_tokens(o.tokens, "train");
  if (corpus->tokens() < 2)
    throw Error(fmt::format("{} holds one token: there is nothing to predict", o.tokens.file),
                "give at least two");
  SampleOptions all;
  all.context = corpus->tokens();
  all.vocabulary = vocabulary;
  all.shuffle = false;
  return SampleStream(*corpus, all).sample(0);
}

void write_gradients(const std::filesystem::path& path, const ParameterSet& gradients) {
  const TensorsToWrite out = tensors_to_write(gradients);
  replace_file_atomic(path, [&](const std::filesystem::path& temporary) {
    write_safetensors_file(temporary, out.tensors, out.read,
                           {{"format", "pt"}, {"made_by", kMadeBy}});
  });
}

// One float per token: the loss of predicting the next one, 0 where that is no target.
void write_losses(const std::filesystem::path& path, std::span<const float> losses) {
  const std::vector<TensorToWrite> tensors = {{"loss", DType::kF32, {std::ssize(losses)}}};
  replace_file_atomic(path, [&](const std::filesystem::path& temporary) {
    write_safetensors_file(temporary, tensors,
                           [&](std::int64_t, const ByteSink& sink) { sink(std::as_bytes(losses)); },
                           {{"format", "pt"}, {"made_by", kMadeBy}});
  });
}

// The header follows the eight bytes of its length and begins with the metadata.
bool begins_as_gradients(std::string_view head) {
  const std::string beginning =
      fmt::format(R"({{"__metadata__":{{"format":"pt","made_by":"{}"}})", kMadeBy);
  return head.size() > 8 && head.substr(8).starts_with(beginning);
}

void check_output(const char* option, const std::filesystem::path& out,
                  const std::filesystem::path& model) {
  const std::filesystem::path directory = std::filesystem::absolute(out).parent_path();
  make_writable_directory(directory);
  if (std::filesystem::equivalent(directory, model) && std::filesystem::exists(out))
    throw Error(fmt::format("{} is a file of the model", out.string()),
                "choose another place for the gradients");
  check_output_file(out, {option, "a file of gradients by longstride", begins_as_gradients});
}

void check_distinct_outputs(const Options& o) {
  const std::pair<const char*, std::string> outputs[] = {
      {"--out", o.out}, {"--losses", o.losses}, {"--lists", o.lists}, {"--picture", o.picture}};
  std::map<std::filesystem::path, const char*> named;
  for (const auto& [option, file] : outputs) {
    if (file.empty()) continue;
    const auto [at, is_new] =
        named.emplace(std::filesystem::absolute(file).lexically_normal(), option);
    if (!is_new)
      throw Error(fmt::format("{} and {} are both {}", at->second, option, file), "name two files");
  }
}

std::vector<ParameterSpec> parameters_of(const Options& o, const AdaptedModel& model,
                                         const Device& device) {
  std::vector<ParameterSpec> specs = model.specs(device, o.numerics.compute);
  sum_head_apart(specs);
  return specs;
}

struct Outcome {
  SequenceResult result;
  NumericsRecord numerics;
};

Outcome run(const Options& o, const Sample& sample, const AdaptedModel& model, Engine& engine,
            const SparseLayers& sparse) {
  NumericsChoice choice = o.numerics;
  choice.sparse = sparse;
  choice.quantize = quantization_of(engine.weights().specs());
  choice.tied_apart = sums_head_apart(engine.weights().specs());
  const NumericsRecord numerics =
      choose_numerics(engine.device(), engine.config(), parse_size(o.chunk, "--chunk"),
                      parse_size(o.page, "--page"), choice);
  SequenceLayout{sample.size(), numerics.chunk_tokens, numerics.page_tokens, sample.document_starts}
      .validate();
  model.load(engine.weights());
  engine.prepare_step(
      numerics, engine
                    .planner(numerics, {.max_tokens = sample.size(),
                                        .keep_chunks = o.keep_chunks,
                                        .within_episode = within_episode(o.rebuild_feed_forward),
                                        .packed = sample.document_starts.size() > 1,
                                        .weighted = !sample.weights.empty()})
                    .plan({}));
  if (!o.losses.empty()) engine.record_losses();
  SequenceInput input{sample.tokens, sample.targets, sample.document_starts, o.first_position};
  input.weights = sample.weights;
  const SequenceResult result =
      engine.backward(input, 1.0 / static_cast<double>(sample.counted_targets()));
  engine.finish_gradients();
  return {result, numerics};
}

// The same sequence with pages of K/V in the type of compute and gradient pages in F32, beside
// which `gradients` are put, and the pages that sparse layers selected.
OrderedJson compare_with_wide(Options o, const Sample& sample, const AdaptedModel& model,
                              const ModelConfig& config, Device& device, const SparseLayers& sparse,
                              const HostGradients& gradients, const PageLists& lists) {
  o.losses.clear();
  o.numerics.kv_dtype = "auto";
  o.numerics.kv_gradient_dtype = "f32";
  o.numerics.layer_kv_dtypes.clear();
  o.numerics.layer_kv_gradient_dtypes.clear();
  Engine engine(device, config, parameters_of(o, model, device));
  const auto [result, numerics] = run(o, sample, model, engine, sparse);
  OrderedJson json = {{"loss", result.loss_sum / static_cast<double>(result.targets)},
                      {"correct", result.correct}};
  const SequenceLayout layout{sample.size(), numerics.chunk_tokens, numerics.page_tokens,
                              sample.document_starts};
  if (sparse.any())
    json["same_pages"] =
        share_of_same_pages(lists, all_lists(engine.runner().selected(), sparse, layout));
  json["groups"] = compare_gradients(gradients, engine.gradients());
  return json;
}

// The same sequence with dense attention, beside which `gradients` are put.
OrderedJson compare_with_dense(const Options& o, const Sample& sample, const AdaptedModel& model,
                               ModelConfig config, Device& device, const HostGradients& gradients) {
  std::fill(config.windows.begin(), config.windows.end(), 0);
  Engine engine(device, config, parameters_of(o, model, device));
  const Outcome dense = run(o, sample, model, engine, {});
  OrderedJson json = {{"loss", dense.result.loss_sum / static_cast<double>(dense.result.targets)},
                      {"correct", dense.result.correct}};
  json["groups"] = compare_gradients(gradients, engine.gradients());
  return json;
}

int gradients(const Options& o) {
  check_distinct_outputs(o);
  const AdaptedModel model = open_adapted_model(o.model, o.adapter);
  if (!o.out.empty()) check_output("--out", o.out, o.model);
  if (!o.losses.empty()) check_output("--losses", o.losses, o.model);
  const std::unique_ptr<Device> device = make_device(o.device);
  const Sample sample = read_sequence(o, model.directory.config().vocabulary);
  ModelConfig config =
      config_with_rope(o.rope, model.directory.config(), o.model, o.adapter, sample.size());
  const SparseLayers sparse =
      apply_sparse_options(o.attention, parse_size(o.page, "--page"), sample.size(), config);
  if (!o.lists.empty()) check_lists_output(o.lists, sparse, o.model);
  if (!o.picture.empty()) check_picture_output(o.picture, sparse);
  if (const NumericsChoice& n = o.numerics;
      o.compare_wide && n.kv_dtype == "auto" && n.kv_gradient_dtype == "f32" &&
      n.layer_kv_dtypes.empty() && n.layer_kv_gradient_dtypes.empty())
    throw Error("--compare-wide, and the pages are wide already",
                "add --kv-dtype int8 or --kv-gradient-dtype int8, for instance");
  if (o.keep_chunks < 1)
    throw Error(fmt::format("--keep-chunks is {}", o.keep_chunks),
                "at least the last chunk is kept: give 1 or more");

  auto engine = std::make_unique<Engine>(*device, config, parameters_of(o, model, *device));
  const auto [result, numerics] = run(o, sample, model, *engine, sparse);
  if (!o.out.empty()) write_gradients(o.out, engine->gradients());
  const SequenceLayout layout{sample.size(), numerics.chunk_tokens, numerics.page_tokens,
                              sample.document_starts};
  if (!o.losses.empty()) write_losses(o.losses, engine->runner().losses());
  if (!o.lists.empty()) write_lists(o.lists, engine->runner().selected(), sparse, layout);
  if (!o.picture.empty()) write_picture(o.picture, engine->runner().selected(), sparse, layout);
  OrderedJson json = {{"loss", result.loss_sum / static_cast<double>(sample.counted_targets())},
                      {"tokens", sample.size()},
                      {"targets", result.targets},
                      {"correct", result.correct},
                      {"documents", sample.document_starts.size()},
                      {"seconds",
                       {{"forward", result.seconds.forward},
                        {"recompute", result.seconds.recompute},
                        {"backward", result.seconds.backward}}},
                      {"numerics", to_json(numerics)}};
  if (o.compare_dense || o.compare_wide) {
    const HostGradients here = fetch_gradients(engine->gradients());
    const PageLists lists = all_lists(engine->runner().selected(), sparse, layout);
    engine.reset();  // its memory serves the other steps
    if (o.compare_wide)
      json["wide"] = compare_with_wide(o, sample, model, config, *device, sparse, here, lists);
    if (o.compare_dense)
      json["dense"] = compare_with_dense(o, sample, model, config, *device, here);
  }
  return print_output(dump_json(json) + "\n");
}

}  // namespace

void add_gradients(CLI::App& app, Action& action) {
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "gradients",
      "loss and gradients of one sequence: JSON on stdout, tensors under Hugging Face names");
  command->add_option("--model", o->model, "Hugging Face directory")->required();
  add_adapter_option(*command, o->adapter);
  add_token_options(*command, o->tokens, "token file: one sequence, all of it");
  command
      ->add_option("--out", o->out,
                   "safetensors file for the gradients; without it only the loss is printed")
      ->check(not_empty());
  command
      ->add_option(
          "--losses", o->losses,
          "safetensors file for every token's loss: `loss`, f32 [tokens], 0 where the next "
          "token is not a target")
      ->check(not_empty());
  command->add_option("--chunk", o->chunk, "tokens of a chunk, a multiple of the page")
      ->capture_default_str();
  command->add_option("--page", o->page, "tokens of a page")->capture_default_str();
  command->add_option("--keep-chunks", o->keep_chunks, "last chunks that keep their activations")
      ->capture_default_str();
  command->add_flag("--rebuild-feed-forward", o->rebuild_feed_forward,
                    "compute gate and up again in the backward pass");
  command->add_option("--first-position", o->first_position, "RoPE position of the first token")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 53));
  add_rope_options(*command, o->rope);
  command
      ->add_option("--attention", o->attention.kind,
                   "model: as its config.json says; sparse: all layers without a window")
      ->check(CLI::IsMember({"model", "sparse"}))
      ->capture_default_str();
  add_sparse_options(*command, o->attention);
  command
      ->add_option("--lists", o->lists,
                   "safetensors file for the pages that sparse layers selected: int32 [query "
                   "pages, budget + forced pages] per layer, -1 where a list is shorter")
      ->check(not_empty());
  command
      ->add_option("--picture", o->picture,
                   "SVG file with a picture of the pages that each query page visits, per layer")
      ->check(not_empty());
  command->add_flag("--compare-dense", o->compare_dense,
                    "also run dense attention: loss, and by group of parameters the relative "
                    "difference and the cosine of the gradients");
  command->add_flag("--compare-wide", o->compare_wide,
                    "also run with pages that are not in 8 bits, and gradient pages in f32: loss, "
                    "share of selected pages that are the same, and gradients as --compare-dense");
  add_numerics_options(*command, o->numerics);
  add_device_option(*command, o->device);
  command->callback([o, &action] { action = [o] { return gradients(*o); }; });
}

}  // namespace longstride::cli
