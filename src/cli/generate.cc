// longstride generate --model DIR --tokens FILE --count N: continues a sequence of tokens.
#include <algorithm>
#include <chrono>
#include <memory>

#include "base/error.h"
#include "base/sizes.h"
#include "cli/adapted_model.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/rope_options.h"
#include "cli/token_options.h"
#include "cli/usage.h"
#include "data/corpus.h"
#include "data/file_checksums.h"
#include "data/token_values.h"
#include "model/stop_tokens.h"
#include "train/auto_chunk.h"
#include "train/generator.h"

namespace longstride::cli {
namespace {

struct Options {
  std::string model, adapter, tokens, format, chunk = "auto", page = "128", device = "auto";
  std::int64_t count = 0;
  double temperature = 0;
  std::uint64_t seed = 0;
  bool ignore_eos = false, json = false;
  NumericsChoice numerics;
  AttentionChoice attention;
  RopeOptions rope;
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::shared_ptr<const Corpus> open_prompt(const Options& o) {
  CorpusOptions options;
  options.paths = {o.tokens};
  options.format = o.format;
  options.keys.format = "--format";
  std::shared_ptr<const Corpus> prompt = open_corpus(options);
  check_files(*prompt);
  return prompt;
}

// All tokens of the file, of any number of documents, are one sequence.
std::vector<std::int32_t> read_prompt(const Options& o, const Corpus& prompt,
                                      const ModelConfig& config) {
  prompt.check_vocabulary(config.vocabulary);
  // Before they are read: a file of data may have more tokens than memory.
  if (prompt.tokens() > config.max_positions - o.count)
    throw Error(
        fmt::format("{} has {} tokens, which with {} more exceed the model's context of {} "
                    "(max_position_embeddings)",
                    o.tokens, prompt.tokens(), o.count, config.max_positions),
        "give a shorter prompt or a lower --count; if the model was made for longer contexts, its "
        "config.json must say so");
  std::vector<std::uint32_t> values(static_cast<std::size_t>(prompt.tokens()));
  prompt.read_values(0, values);
  const auto outside = std::ranges::find_if(
      values, [&](std::uint32_t t) { return std::int64_t{t} >= config.vocabulary; });
  if (outside != values.end()) {
    const std::vector<TokenRange> files = prompt.token_files();
    const int width = files.empty() ? 0 : files.front().width;
    TokenValues statistics;
    statistics.add(0, values, width, config.vocabulary);
    throw outside_error(prompt.locate(outside - values.begin()), statistics, width,
                        config.vocabulary);
  }
  return {values.begin(), values.end()};
}

void check_memory(const Device& device, const ModelConfig& config, const NumericsRecord& numerics,
                  std::int64_t tokens, std::int64_t weights) {
  const std::int64_t pages = Generator::page_bytes(config, numerics, tokens),
                     free = device.available_bytes();
  if (weights + pages <= free) return;
  throw Error(fmt::format("the keys and values of {} tokens take {}, the weights {}, and {} are "
                          "free on {}",
                          tokens, format_bytes(static_cast<double>(pages)),
                          format_bytes(static_cast<double>(weights)),
                          format_bytes(static_cast<double>(free)), device.name()),
              "give a shorter prompt, a lower --count or a smaller model");
}

struct Result {
  std::vector<std::int32_t> tokens;
  double prompt_s = 0, tokens_s = 0;
};

Result continue_prompt(Generator& generator, std::span<const std::int32_t> prompt,
                       const GenerateOptions& options) {
  Result result;
  const auto start = std::chrono::steady_clock::now();
  generator.extend(prompt);
  result.prompt_s = seconds_since(start);
  result.tokens = generate(generator, options);
  result.tokens_s = seconds_since(start) - result.prompt_s;
  return result;
}

std::string text_of(const std::vector<std::int32_t>& tokens) {
  return fmt::format("{}\n", fmt::join(tokens, " "));
}

int generate_command(const Options& o, bool seed_given) {
  if (seed_given && o.temperature == 0)
    throw Error("--seed has no effect without --temperature", "greedy output has no chance in it");
  const AdaptedModel model = open_adapted_model(o.model, o.adapter);
  const std::shared_ptr<const Corpus> corpus = open_prompt(o);
  ModelConfig config = config_with_rope(o.rope, model.directory.config(), o.model, o.adapter,
                                        corpus->tokens() + o.count);
  const std::vector<std::int32_t> prompt = read_prompt(o, *corpus, config);
  GenerateOptions options{.count = o.count, .temperature = o.temperature, .seed = o.seed};
  if (!o.ignore_eos) options.stop = read_stop_tokens(model.directory.path(), config);
  // The last new token is not computed.
  const std::int64_t tokens = std::ssize(prompt) + o.count - 1, page = parse_size(o.page, "--page");
  const std::unique_ptr<Device> device = make_device(o.device);
  NumericsChoice choice = o.numerics;
  choice.sparse = apply_sparse_options(o.attention, page, tokens, config);
  const std::vector<ParameterSpec> specs = model.specs(*device, o.numerics.compute);
  const std::int64_t chunk =
      o.chunk == "auto" ? auto_forward_chunk({config, specs, choice, tokens, page}, *device)
                        : parse_size(o.chunk, "--chunk");
  const NumericsRecord numerics = choose_numerics(*device, config, chunk, page, choice);
  SequenceLayout{tokens, numerics.chunk_tokens, numerics.page_tokens, {0}}.validate();
  check_memory(*device, config, numerics, tokens, ParameterSet::bytes_needed(specs));
  ParameterSet weights(*device, specs, "weights");
  model.load(weights);
  Generator generator(config, weights, numerics, tokens);
  const Result result = continue_prompt(generator, prompt, options);
  if (!o.json) return print_output(text_of(result.tokens));
  const bool stopped = std::ranges::find(options.stop, result.tokens.back()) != options.stop.end();
  const OrderedJson json = {{"tokens", result.tokens},
                            {"prompt_tokens", prompt.size()},
                            {"stopped", stopped},
                            {"seconds_prompt", result.prompt_s},
                            {"seconds_tokens", result.tokens_s},
                            {"numerics", to_json(numerics)}};
  return print_output(dump_json(json) + "\n");
}

}  // namespace

void add_generate(CLI::App& app, Action& action) {
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("generate", "continues a sequence of tokens");
  command->add_option("--model", o->model, "Hugging Face directory")->required();
  add_adapter_option(*command, o->adapter);
  command->add_option("--tokens", o->tokens, "the sequence: a token file, or text")->required();
  add_format_option(*command, o->format);
  command->add_option("--count", o->count, "how many tokens to add, at most")
      ->required()
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 31));
  command
      ->add_option("--temperature", o->temperature,
                   "0: always the token with the largest logit; above: drawn from the softmax of "
                   "logits / temperature")
      ->check(finite_number())
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  CLI::Option* seed = command->add_option(
      "--seed", o->seed, "of the draws: the same seed and prompt give the same tokens");
  command->add_flag("--ignore-eos", o->ignore_eos,
                    "go on after the tokens that end a text (eos_token_id of "
                    "generation_config.json, or of config.json)");
  command
      ->add_option(
          "--chunk", o->chunk,
          "tokens of a chunk of the prompt, or auto: 1024 on the CPU, at most 16384 on a GPU")
      ->capture_default_str();
  command->add_option("--page", o->page, "tokens of a page")->capture_default_str();
  command
      ->add_option("--attention", o->attention.kind,
                   "model: as its config.json says; sparse: all layers without a window")
      ->check(CLI::IsMember({"model", "sparse"}))
      ->capture_default_str();
  add_rope_options(*command, o->rope);
  add_sparse_options(*command, o->attention);
  command->add_flag("--json", o->json, "print JSON, with times");
  add_compute_options(*command, o->numerics);
  add_device_option(*command, o->device);
  command->callback([o, seed, &action] {
    action = [o, given = seed->count() > 0] { return generate_command(*o, given); };
  });
}

}  // namespace longstride::cli
