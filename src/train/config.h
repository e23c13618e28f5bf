// TrainConfig: the settings of `longstride train`, from a TOML file with sections and overrides
// `section.key=value`. docs/configuration.md lists all keys; config_table.h is the same table in
// code, and drives everything here. Plain data.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "data/sample_set.h"
#include "model/rope_choice.h"
#include "train/attention_choice.h"

namespace longstride {

struct ModelSourceConfig {
  std::filesystem::path path;  // a Hugging Face directory; or
  std::string preset;          // a built-in shape with random weights: exactly one of the two
  std::string dtype = "f32";   // of a preset's weights: "f32", "bf16" or "f16"
  std::int64_t window = 0;     // of every layer of a preset; 0: its own
  std::string quantize = {};   // the projections, at load: "nf4" or "int8"; empty: as they are
  // Globs over parameter names: what is trained (none: all), and what of it is not.
  std::vector<std::string> train, freeze;
  RopeChoice rope = {};  // in place of that of config.json or of the preset
};

struct DataConfig {
  std::vector<std::filesystem::path> path;
  // Relative shares of `path`'s entries; empty: they are joined.
  std::vector<double> mix;
  // "u32", "u16", "text" or "megatron". Empty: "u32", or as prepared directories say.
  std::string format;
  std::optional<std::int64_t> document_token;
  std::filesystem::path document_index;
  std::filesystem::path loss_mask;
  Packing pack = Packing::kStretches;
  std::string long_documents = "split";  // "split", "cut" or "drop"
  bool shuffle = true;
};

struct TrainingConfig {
  std::int64_t context = 0;
  std::optional<std::int64_t> chunk;  // without a value: auto, until the run is planned
  std::int64_t page = 128;
  std::int64_t keep_chunks = 1;
  bool rebuild_feed_forward = false;
  std::string nonfinite = "stop";
  std::int64_t steps = 0;
  std::int64_t batch = 1;
  std::int64_t seed = 0;
};

struct OptimizerConfig {
  double learning_rate = 1e-4;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  double clip_norm = 1.0;      // 0: off
  std::string state = "fp32";  // of the moments: "fp32" or "8bit"
  bool masters = true;         // false: weights that are not fp32 are rounded stochastically
  // Of some parameters, as "glob=number"; the last one that matches counts.
  std::vector<std::string> learning_rates, weight_decays;
};

// Low-rank adapters on a frozen model. Without a rank and a path there are none.
struct LoraConfig {
  std::optional<std::int64_t> rank;
  std::optional<double> alpha;  // none: twice the rank
  bool rslora = false;
  double dropout = 0;
  std::vector<std::string> targets;     // projections; empty: all seven
  std::vector<std::string> layers;      // "3" or "8-15"; empty: all
  std::vector<std::string> also_train;  // modules that are trained whole
  std::filesystem::path path;           // an adapter to begin with

  bool any() const { return rank.has_value() || !path.empty(); }
};

struct ScheduleConfig {
  std::string kind = "cosine";  // "cosine", "linear" or "constant"
  std::int64_t warmup_steps = 0;
  double final_fraction = 0.1;
};

struct CheckpointConfig {
  std::filesystem::path directory;
  std::int64_t every = 0;  // 0: only at the end
  std::int64_t keep = 0;   // 0: all
  // Bytes of host memory for a copy of what is saved. Without a value: auto, what is free.
  std::optional<std::int64_t> snapshot;
};

struct MetricsConfig {
  std::filesystem::path file;  // never empty after loading
};

// Evaluation on other data during the run.
struct EvalConfig {
  std::vector<std::filesystem::path> path;  // empty: none; of the same format as the data
  std::filesystem::path document_index, loss_mask;
  std::int64_t every = 0;    // steps; 0: only at the end
  std::int64_t samples = 0;  // the first so many; 0: all
};

struct DeviceConfig {
  std::string name = "auto";  // "auto", "cpu" or "cuda"
  std::int64_t threads = 0;   // 0: all
};

// Bytes. Pages and optimizer state that do not fit on the device go to host memory, then to disk.
struct MemoryConfig {
  // Without a value: auto, what is free.
  std::optional<std::int64_t> gpu;         // of the device, for everything
  std::optional<std::int64_t> host, disk;  // for offloaded pages and state
  std::filesystem::path disk_path;
  std::string optimizer = "auto";    // moments and masters: "auto", "device", "host" or "disk"
  std::string activations = "auto";  // "auto", "device" or "recompute"
};

// Several processes, started by mpirun or srun (docs/parallel.md).
struct ParallelConfig {
  std::int64_t data = 1;      // groups of sequences that a batch is cut into
  std::int64_t pipeline = 1;  // stages of layers, each a process
  std::int64_t heads = 1;     // processes that share the heads of a stage
  std::string link = "auto";  // how tensors travel: "auto", "nccl" or "mpi"
  double timeout = 600;       // seconds without progress after which a process is given up
};

struct NumericsConfig {
  std::string compute = "auto";
  std::string kv_gradient_dtype = "f32";
  std::string determinism = "exact";
  std::string kv_dtype = "auto";
  std::int64_t hot_pages = 64;  // pages/hot_pages.h
};

struct TrainConfig {
  ModelSourceConfig model;
  DataConfig data;
  TrainingConfig training;
  AttentionChoice attention;
  OptimizerConfig optimizer;
  LoraConfig lora;
  ScheduleConfig schedule;
  CheckpointConfig checkpoint;
  MetricsConfig metrics;
  EvalConfig eval;
  DeviceConfig device;
  MemoryConfig memory;
  NumericsConfig numerics;
  ParallelConfig parallel;
};

// Reads and validates. An override is `section.key=value`; its value is parsed as TOML, or taken as
// a string if it is not valid TOML. Relative paths in the file are relative to the file's
// directory, those of overrides to the current one. Throws Error naming file, line and key, with
// the nearest known name for an unknown one.
TrainConfig load_train_config(const std::filesystem::path& file,
                              const std::vector<std::string>& overrides = {});

// The same from a text; `name` stands for the file in messages.
TrainConfig parse_train_config(std::string_view toml, const std::string& name,
                               const std::filesystem::path& base_directory,
                               const std::vector<std::string>& overrides = {});

// Checks that involve several keys: required keys, keys that exclude each other, chunk and page,
// warm-up and steps. Throws Error. Called by load_train_config and parse_train_config.
void validate(const TrainConfig& config);

// The effective configuration: every key that has a value. parse_train_config(config_to_toml(c))
// returns c.
std::string config_to_toml(const TrainConfig& config);
OrderedJson config_to_json(const TrainConfig& config);

// The tables of docs/configuration.md.
std::string configuration_markdown();

}  // namespace longstride
