#include "cli/rope_options.h"

#include <algorithm>
#include <optional>

#include "base/files.h"
#include "base/sizes.h"
#include "train/checkpoint_state.h"

namespace longstride::cli {
namespace {

namespace fs = std::filesystem;

struct Trained {
  RopeChoice rope;
  std::int64_t context = 0;
};

// What our own checkpoints say about the training of an adapter.
Trained trained_with(const fs::path& adapter) {
  const fs::path path = adapter / kStateDirectory / kStateFile;
  if (adapter.empty() || !fs::exists(path)) return {};
  const OrderedJson config = parse_state_text(read_text(path), adapter).state.config;
  Trained trained;
  if (const auto training = config.find("training"); training != config.end())
    trained.context = training->value("context", std::int64_t{0});
  const auto model = config.find("model");
  if (model == config.end()) return trained;
  trained.rope.type = model->value("rope_type", std::string());
  const auto take = [&]<class T>(const char* key, std::optional<T>& to) {
    if (const auto value = model->find(key); value != model->end()) to = value->template get<T>();
  };
  take("rope_theta", trained.rope.theta);
  take("rope_factor", trained.rope.factor);
  take("rope_original_positions", trained.rope.original_positions);
  return trained;
}

}  // namespace

void add_rope_options(CLI::App& command, RopeOptions& options) {
  command
      .add_option("--rope-type", options.choice.type,
                  "how positions are scaled, in place of the model's own way; default: not at all")
      ->check(CLI::IsMember({"default", "linear", "llama3", "yarn"}));
  command.add_option("--rope-theta", options.choice.theta, "base of the rotary frequencies");
  command.add_option("--rope-factor", options.choice.factor,
                     "how many times longer the context becomes");
  command.add_option("--rope-original-positions", options.original_positions,
                     "the context before scaling (llama3, yarn)");
}

ModelConfig config_with_rope(const RopeOptions& options, ModelConfig config,
                             const fs::path& directory, const fs::path& adapter,
                             std::int64_t tokens) {
  RopeChoice rope = options.choice;
  const RopeNames& names = rope_options();
  if (!options.original_positions.empty())
    rope.original_positions = parse_size(options.original_positions, names.original_positions);
  if (!rope.any()) {
    const Trained trained = trained_with(adapter);
    rope = trained.rope;
    tokens = std::max(tokens, trained.context);
  }
  apply_rope(rope, names, tokens, (directory / "config.json").string(), config);
  return config;
}

}  // namespace longstride::cli
