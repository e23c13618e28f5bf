#include "cli/demo_task.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <vector>

#include "base/files.h"
#include "base/random.h"
#include "model/model_directory.h"

namespace longstride::cli {
namespace {

// Token ids, in this order: facts (key, value), questions (key), answers (value), noise.
struct Tokens {
  const RecallTask& task;
  std::uint32_t fact(std::int64_t key, std::int64_t value) const {
    return static_cast<std::uint32_t>(key * task.values + value);
  }
  std::uint32_t question(std::int64_t key) const {
    return static_cast<std::uint32_t>(task.keys * task.values + key);
  }
  std::uint32_t answer(std::int64_t value) const {
    return static_cast<std::uint32_t>(task.keys * task.values + task.keys + value);
  }
  std::uint32_t noise(std::int64_t i) const {
    return static_cast<std::uint32_t>(task.keys * task.values + task.keys + task.values + i);
  }
};

template <class T>
void write_values(const std::filesystem::path& path, const std::vector<T>& values) {
  FileWriter writer(path);
  writer.write(std::as_bytes(std::span(values)));
  writer.finish();
}

void append_document(const RecallTask& task, std::int64_t length, Random& random,
                     std::vector<std::uint32_t>& tokens, std::vector<std::uint8_t>& mask) {
  const Tokens token{task};
  const auto draw = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(n)));
  };
  std::vector<std::int64_t> keys(static_cast<std::size_t>(task.keys)), value_of(keys.size());
  std::iota(keys.begin(), keys.end(), std::int64_t{0});
  for (std::size_t i = keys.size() - 1; i > 0; --i)
    std::swap(keys[i], keys[static_cast<std::size_t>(draw(static_cast<std::int64_t>(i) + 1))]);
  for (const std::int64_t key : keys) {
    value_of[static_cast<std::size_t>(key)] = draw(task.values);
    tokens.push_back(token.fact(key, value_of[static_cast<std::size_t>(key)]));
    mask.push_back(0);
  }
  const std::int64_t questions = task.questions(length), noise = length - task.keys - 2 * questions;
  for (std::int64_t i = 0; i < noise; ++i) {
    tokens.push_back(token.noise(draw(task.noise_tokens)));
    mask.push_back(0);
  }
  for (std::int64_t i = 0; i < questions; ++i) {
    const std::int64_t key = draw(task.keys);
    tokens.push_back(token.question(key));
    mask.push_back(0);
    tokens.push_back(token.answer(value_of[static_cast<std::size_t>(key)]));
    mask.push_back(1);
  }
}

}  // namespace

void write_recall_model(const std::filesystem::path& directory, const RecallTask& task,
                        std::uint64_t seed) {
  const Json json = {{"architectures", {"LlamaForCausalLM"}},
                     {"model_type", "llama"},
                     {"hidden_size", 128},
                     {"num_hidden_layers", 2},
                     {"num_attention_heads", 4},
                     {"num_key_value_heads", 2},
                     {"head_dim", 32},
                     {"intermediate_size", 256},
                     {"vocab_size", task.vocabulary()},
                     {"rms_norm_eps", 1e-6},
                     {"rope_theta", 1e6},
                     {"max_position_embeddings", 1 << 20},
                     {"hidden_act", "silu"},
                     {"initializer_range", 0.05},
                     {"tie_word_embeddings", false},
                     {"torch_dtype", "float32"}};
  const ModelConfig config = parse_config(json, "the demo's model");
  const std::unique_ptr<Device> device = make_device("cpu");
  ParameterSet weights(*device, config, DType::kF32, "weights");
  initialize_random(weights, config, seed);
  DirectoryWriter writer(directory);
  write_model_directory(writer.path(), config, weights);
  writer.commit();
}

std::int64_t document_length(const RecallTask& task, std::int64_t sample, std::int64_t samples) {
  const double done = static_cast<double>(sample) / static_cast<double>(samples);
  struct Phase {
    double end;  // as a share of the samples
    std::int64_t parts;
  };
  constexpr Phase kPhases[] = {{0.36, 64}, {0.4, 32}, {0.44, 16}, {0.48, 8}, {0.52, 4}, {0.58, 2}};
  std::int64_t parts = 1;
  for (const Phase& phase : kPhases)
    if (parts == 1 && done < phase.end) parts = phase.parts;
  // Facts take at most a quarter of a document.
  while (parts > 1 && task.context / parts < 4 * task.keys) parts /= 2;
  return task.context / parts;
}

RecallData write_recall_data(const std::filesystem::path& directory, const RecallTask& task,
                             std::int64_t samples, std::uint64_t seed) {
  make_writable_directory(directory);
  RecallData data{directory / "tokens.u32", directory / "loss-mask.u8",
                  directory / "documents.u64"};
  std::vector<std::uint32_t> tokens;
  std::vector<std::uint8_t> mask;
  std::vector<std::uint64_t> starts;
  for (std::int64_t i = 0; i < samples; ++i) {
    Random random(seed, static_cast<std::uint64_t>(i));
    const std::int64_t length = document_length(task, i, samples);
    for (std::int64_t at = 0; at < task.context; at += length) {
      starts.push_back(tokens.size());
      append_document(task, length, random, tokens, mask);
    }
  }
  write_values(data.tokens, tokens);
  write_values(data.loss_mask, mask);
  write_values(data.document_index, starts);
  return data;
}

}  // namespace longstride::cli
