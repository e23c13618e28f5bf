// A directory with the inputs of a training run (run.toml, tokens, models), and access to its
// outputs.
//
// Programs run inside it and all paths are relative, so that the files of two runs in two of these
// directories can be compared byte by byte.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <span>

#include "base/files.h"
#include "base/json.h"
#include "base/random.h"
#include "model/model_directory.h"
#include "model/presets.h"
#include "tests/cli/run_program.h"
#include "tests/data/temp_directory.h"

namespace longstride {

inline constexpr const char* kTinyRun = R"(
[model]
preset = "tiny-llama"
[data]
path = "tokens.bin"
[training]
context = 256
chunk = 64
page = 16
steps = 6
seed = 7
[optimizer]
learning_rate = 1e-3
[schedule]
kind = "constant"
[checkpoint]
directory = "out"
every = 3
[device]
name = "cpu"
)";

// A preset's config.json with changes.
inline ModelConfig changed_preset(const char* preset, const Json& changes = Json::object()) {
  Json json = find_preset(preset).raw;
  json.update(changes);
  return parse_config(json, "test");
}

class RunDirectory {
 public:
  RunDirectory() {
    directory_.write_text("run.toml", kTinyRun);
    write_tokens("tokens.bin", 16 * 256 + 1);  // whole sequences, and the last target
  }
  std::filesystem::path path(const std::string& name = "") const {
    return directory_.path() / name;
  }
  const TempDirectory& files() const { return directory_; }

  void write_tokens(const std::string& name, std::int64_t count, std::uint32_t below = 320) const {
    Random random(1);
    std::vector<std::uint32_t> tokens(static_cast<std::size_t>(count));
    for (std::uint32_t& t : tokens) t = static_cast<std::uint32_t>(random.below(below));
    directory_.write(name, tokens);
  }

  void write_model(const std::string& name, const ModelConfig& config, DType dtype = DType::kF32,
                   std::int64_t shard_bytes = kDefaultShardBytes) const {
    const std::unique_ptr<Device> device = make_cpu_device();
    ParameterSet weights(*device, config, dtype, "weights");
    initialize_random(weights, config, 3);
    std::filesystem::create_directories(path(name));
    write_model_directory(path(name), config, weights, {}, shard_bytes);
  }

  // Runs any subcommand in this directory.
  ProgramResult run(const std::vector<std::string>& arguments, RunOptions options = {}) const {
    options.directory = path();
    return run_program(arguments, std::move(options));
  }
  ProgramResult train(const std::vector<std::string>& more = {}, RunOptions options = {}) const {
    return run(train_arguments(more), std::move(options));
  }
  static std::vector<std::string> train_arguments(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"train", "run.toml"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  std::string read(const std::string& name) const { return read_text(path(name)); }
  std::vector<Json> metrics(const std::string& name = "out/metrics.jsonl") const {
    std::ifstream in(path(name));
    std::vector<Json> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(Json::parse(line));
    return lines;
  }

  // Names directly below, hidden ones included.
  std::set<std::string> names(const std::string& below = "") const {
    std::set<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(path(below)))
      found.insert(entry.path().filename().string());
    return found;
  }
  // Regular files at any depth, by their path below `below`.
  std::map<std::string, std::string> contents(const std::string& below) const {
    std::map<std::string, std::string> found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path(below)))
      if (entry.is_regular_file())
        found[entry.path().lexically_relative(path(below)).string()] = read_text(entry.path());
    return found;
  }
  // Nothing was written: no output directory, or an empty one.
  bool nothing_written(const std::string& out = "out") const {
    return !std::filesystem::exists(path(out)) || std::filesystem::is_empty(path(out));
  }

 private:
  TempDirectory directory_;
};

// Compares every file byte by byte; lists differences by name, since the bytes are too long.
inline ::testing::AssertionResult same_files(const std::map<std::string, std::string>& a,
                                             const std::map<std::string, std::string>& b) {
  if (a.empty()) return ::testing::AssertionFailure() << "no files";
  for (const auto& [name, bytes] : a)
    if (!b.contains(name) || b.at(name) != bytes)
      return ::testing::AssertionFailure()
             << name << (b.contains(name) ? " differs" : " is only in the first");
  for (const auto& [name, bytes] : b)
    if (!a.contains(name)) return ::testing::AssertionFailure() << name << " is only in the second";
  return ::testing::AssertionSuccess();
}

// Metrics without values that depend on the clock, the machine's free memory or the process.
inline std::vector<Json> without_timings(std::vector<Json> lines) {
  for (Json& line : lines)
    for (const char* key : {"time", "elapsed", "seconds_left", "seconds", "seconds_forward",
                            "seconds_recompute", "seconds_backward", "seconds_update",
                            "tokens_per_s", "tflops", "bytes_limit", "peak_rss"})
      line.erase(key);
  return lines;
}

// Changes one byte in the middle of a file.
inline void flip_byte(const std::filesystem::path& path) {
  std::string bytes = read_text(path);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 0x10);
  std::ofstream(path, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace longstride
