// longstride inspect PATH: shows what is in a checkpoint, a model directory, a safetensors file or
// a token file.
#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/sizes.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "data/corpus.h"
#include "data/manifest.h"
#include "model/model_directory.h"
#include "train/checkpoint.h"

namespace longstride::cli {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string path, format;
  bool json = false;
};

OrderedJson tensors_of(const SafetensorsReader& reader) {
  std::map<std::string, std::int64_t> bytes_by_type;
  for (const std::string& name : reader.names())
    bytes_by_type[reader.info(name).dtype_name] += reader.info(name).bytes;
  OrderedJson json = {{"tensors", reader.names().size()}, {"bytes", reader.total_bytes()}};
  for (const auto& [type, bytes] : bytes_by_type) json["bytes_by_type"][type] = bytes;
  return json;
}

OrderedJson inspect_model(const fs::path& path) {
  const ModelDirectory model = ModelDirectory::open(path);
  const ModelConfig& c = model.config();
  OrderedJson json = {{"kind", "model"},
                      {"architecture", name_of(c.architecture)},
                      {"parameters", parameter_count(c)},
                      {"layers", c.layers},
                      {"hidden_size", c.hidden_size},
                      {"query_heads", c.query_heads},
                      {"kv_heads", c.kv_heads},
                      {"head_size", c.head_size},
                      {"ffn_size", c.ffn_size},
                      {"vocabulary", c.vocabulary},
                      {"tied_embeddings", c.tied_embeddings},
                      {"rope", name_of(c.rope.type)},
                      {"windows", c.windows},
                      {"max_positions", c.max_positions}};
  if (c.local_rope) json["local_rope_theta"] = c.local_rope->theta;
  json["weights"] = tensors_of(model.reader());
  return json;
}

// Reading the state verifies every file against its checksum.
OrderedJson inspect_checkpoint(const fs::path& path) {
  const TrainState state = read_checkpoint_state(path);
  OrderedJson json = {{"kind", "checkpoint"},
                      {"step", state.step},
                      {"data_position", state.data_position},
                      {"seed", state.seed},
                      {"verified", true}};
  json["numerics"] = to_json(state.numerics);
  json["model"] = inspect_model(path);
  json["config"] = state.config;
  return json;
}

OrderedJson inspect_run(const fs::path& path, const fs::path& newest) {
  OrderedJson json = {{"kind", "run"}, {"newest", newest.string()}};
  json["checkpoint"] = inspect_checkpoint(path / newest);
  return json;
}

OrderedJson inspect_safetensors(const fs::path& path) {
  const SafetensorsReader reader = SafetensorsReader::open_file(path);
  OrderedJson json = {{"kind", "safetensors"}};
  json.update(tensors_of(reader));
  for (const std::string& name : reader.names()) {
    const TensorInfo& info = reader.info(name);
    json["entries"][name] = {{"dtype", info.dtype_name}, {"shape", info.shape}};
  }
  return json;
}

OrderedJson inspect_tokens(const fs::path& path, const std::string& format) {
  CorpusOptions options;
  options.paths = {path};
  options.format = format;
  const std::shared_ptr<const Corpus> corpus = open_corpus(options);
  constexpr std::int64_t kBlock = 1 << 20;
  std::vector<std::int32_t> block;
  std::int32_t smallest = 0, largest = 0;
  for (std::int64_t at = 0; at < corpus->tokens(); at += kBlock) {
    block.resize(static_cast<std::size_t>(std::min(kBlock, corpus->tokens() - at)));
    corpus->read(at, block);
    const auto [low, high] = std::minmax_element(block.begin(), block.end());
    smallest = at == 0 ? *low : std::min(smallest, *low);
    largest = std::max(largest, *high);
  }
  return {{"kind", "tokens"},
          {"format", format},
          {"tokens", corpus->tokens()},
          {"smallest", smallest},
          {"largest", largest}};
}

OrderedJson inspect_prepared(const fs::path& path) {
  const fs::path file = path / kManifestFile;
  const Manifest manifest = parse_manifest(read_text(file), file.string());
  OrderedJson json = {{"kind", "prepared data"},
                      {"token_bytes", manifest.token_bytes},
                      {"vocabulary", manifest.vocabulary},
                      {"targets", manifest.targets == TargetsKind::kAll    ? "all"
                                  : manifest.targets == TargetsKind::kMask ? "mask"
                                                                           : "weights"}};
  for (const auto& [name, split] : manifest.splits)
    json[name] = {
        {"documents", split.documents}, {"tokens", split.tokens}, {"shards", split.shards.size()}};
  return json;
}

OrderedJson inspect(const Options& o) {
  const fs::path path = o.path;
  if (!fs::exists(path))
    throw Error(fmt::format("{} does not exist", o.path),
                "name a checkpoint, a model directory, a safetensors file or a token file");
  if (fs::is_directory(path)) {
    if (fs::exists(path / "state" / "state.json")) return inspect_checkpoint(path);
    if (fs::exists(path / "config.json")) return inspect_model(path);
    if (is_prepared(path, false)) return inspect_prepared(path);
    if (const auto newest = newest_checkpoint(path)) return inspect_run(path, newest->filename());
    throw Error(fmt::format("{} holds neither a model nor checkpoints nor prepared data", o.path),
                "a model directory has a config.json, a run has step-N directories, prepared data "
                "have a manifest.json");
  }
  if (!fs::is_regular_file(path))
    throw Error(fmt::format("{} is neither a file nor a directory", o.path),
                "name a checkpoint, a model directory, a safetensors file or a token file");
  if (path.extension() == ".safetensors") return inspect_safetensors(path);
  if (!o.format.empty()) return inspect_tokens(path, o.format);
  // Token files have no header: a size that is not a multiple of four cannot be u32.
  return inspect_tokens(path, fs::file_size(path) % 4 == 0 ? "u32" : "u16");
}

// One line per leaf: `weights.bytes  1234`.
std::string lines_of(const OrderedJson& json, const std::string& prefix = "") {
  std::string lines;
  for (const auto& [key, value] : json.items()) {
    const std::string name = prefix + key;
    if (value.is_object()) {
      lines += lines_of(value, name + ".");
      continue;
    }
    std::string text = value.is_string() ? value.get<std::string>() : dump_json(value);
    if (key.find("bytes") == 0 && value.is_number())
      text += " (" + format_bytes(value.get<double>()) + ")";
    lines += fmt::format("{:<36} {}\n", name, text);
  }
  return lines;
}

}  // namespace

void add_inspect(CLI::App& app, Action& action) {
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "inspect",
      "what is in a checkpoint, a model directory, prepared data, a safetensors file or a token "
      "file");
  command->add_option("path", o->path)->required();
  command->add_option("--format", o->format, "of a token file; guessed from its size otherwise")
      ->check(CLI::IsMember({"u32", "u16", "text", "megatron"}));
  command->add_flag("--json", o->json, "as one JSON object");
  command->callback([o, &action] {
    action = [o] {
      const OrderedJson json = inspect(*o);
      return print_output(o->json ? dump_json(json) + "\n" : lines_of(json));
    };
  });
}

}  // namespace longstride::cli
