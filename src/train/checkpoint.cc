#include "train/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "model/adapter_directory.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;
constexpr const char* kOptimizerFile = "optimizer.safetensors";

// N of "step-N"; nothing for other names.
std::optional<std::int64_t> step_of(const fs::path& path) {
  const std::string name = path.filename().string();
  std::int64_t step = 0;
  if (!name.starts_with("step-")) return std::nullopt;
  const auto [end, error] = std::from_chars(name.data() + 5, name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return step;
}

// PEFT stores a trained embedding twice where it keeps the head tied to it.
TensorsToWrite with_tied_head(TensorsToWrite weights) {
  const std::string prefix = "base_model.model.";
  const auto embedding = std::ranges::find(weights.tensors, prefix + "model.embed_tokens.weight",
                                           &TensorToWrite::name);
  if (embedding == weights.tensors.end()) return weights;
  const std::int64_t at = embedding - weights.tensors.begin(), head = std::ssize(weights.tensors);
  TensorToWrite tied = *embedding;
  tied.name = prefix + "lm_head.weight";
  weights.tensors.push_back(std::move(tied));
  weights.read = [read = std::move(weights.read), at, head](std::int64_t i, const ByteSink& sink) {
    read(i == head ? at : i, sink);
  };
  return weights;
}

// Files of a save may have been removed while it was written.
void check_complete(const fs::path& directory, const std::vector<WrittenFile>& files) {
  for (const WrittenFile& file : files) {
    std::error_code missing;
    const std::uintmax_t bytes = fs::file_size(directory / file.name, missing);
    if (missing || bytes != static_cast<std::uintmax_t>(file.bytes))
      throw Error(fmt::format("{} went while it was being saved", (directory / file.name).string()),
                  "leave checkpoint.directory alone during a run; earlier saves are untouched");
  }
}

}  // namespace

std::vector<WrittenFile> write_weights(const fs::path& directory, const AdapterConfig* adapter,
                                       const ModelConfig& config, const CheckpointTensors& tensors,
                                       std::span<const SideFile> side_files) {
  if (adapter == nullptr)
    return write_model_directory(directory, config, tensors.weights, side_files);
  return write_adapter_directory(
      directory, *adapter,
      adapter->tie_weights ? with_tied_head(tensors.weights) : tensors.weights);
}

void make_state_directory(const fs::path& directory) {
  const fs::path state_directory = directory / kStateDirectory;
  // Does not create parents: if they are gone, so are the weights.
  std::error_code failed;
  if (!fs::create_directory(state_directory, failed))
    throw Error(fmt::format("cannot create {}: {}", state_directory.string(), failed.message()),
                "leave checkpoint.directory alone during a run; earlier saves are untouched");
}

WrittenFile write_optimizer_file(const fs::path& directory, const std::string& name,
                                 const TensorsToWrite& state,
                                 const std::vector<std::int64_t>& indices) {
  WrittenFile file = write_safetensors_part(
      directory / kStateDirectory / name, state.tensors, indices,
      [&](std::int64_t i, const ByteSink& sink) {
        const TensorToWrite& tensor = state.tensors[static_cast<std::size_t>(i)];
        state.read(i, [&](std::span<const std::byte> bytes) {
          if (is_weight_type(tensor.dtype))  // integers are finite
            check_finite(bytes, tensor.dtype, tensor.name, "the optimizer's state is");
          sink(bytes);
        });
      });
  file.name = fmt::format("{}/{}", kStateDirectory, name);
  return file;
}

void write_state_file(const fs::path& directory, const TrainState& state,
                      const std::vector<WrittenFile>& files) {
  OrderedJson json = {{"format", kCheckpointFormat},
                      {"step", state.step},
                      {"updates", state.updates},
                      {"skipped_in_a_row", state.skipped_in_a_row},
                      {"next_is_nonfinite", state.next_is_nonfinite},
                      {"data_position", state.data_position},
                      {"drops_stub", state.drops_stub},
                      {"seed", state.seed},
                      {"numerics", to_json(state.numerics)},
                      {"config", state.config},
                      {"data_digest", state.data_digest}};
  if (!state.model_digest.empty()) json["model_digest"] = state.model_digest;
  for (const WrittenFile& file : files)
    json["files"][file.name] = {{"bytes", file.bytes},
                                {"xxh3", fmt::format("{:016x}", file.checksum)}};
  // The text is followed by its own checksum.
  FileWriter state_file(directory / kStateDirectory / kStateFile);
  state_file.write(dump_json(json, 2) + "\n");
  const std::uint64_t own = state_file.checksum();
  state_file.write(fmt::format("{:016x}\n", own));
  state_file.finish();
  check_complete(directory, files);
}

fs::path save_checkpoint(const fs::path& root, const CheckpointContents& contents) {
  make_writable_directory(root);
  fs::path target = checkpoint_path(root, contents.state.step);
  DirectoryWriter writer(target);
  std::vector<WrittenFile> files = write_weights(writer.path(), contents.adapter, contents.config,
                                                 contents.tensors, contents.side_files);
  make_state_directory(writer.path());
  const TensorsToWrite& state = contents.tensors.state;
  std::vector<std::int64_t> all(state.tensors.size());
  std::iota(all.begin(), all.end(), std::int64_t{0});
  files.push_back(write_optimizer_file(writer.path(), kOptimizerFile, state, all));
  write_state_file(writer.path(), contents.state, files);
  writer.commit();
  return target;
}

fs::path checkpoint_path(const fs::path& root, std::int64_t step) {
  return root / fmt::format("step-{}", step);
}

void remove_old_checkpoints(const fs::path& root, std::int64_t step, std::int64_t keep) {
  if (keep == 0) return;
  std::vector<SavedStep> found = saved_checkpoints(root);
  // Later ones, which a resumed run skipped, are neither counted nor removed.
  std::erase_if(found, [&](const SavedStep& saved) { return saved.step > step; });
  for (std::size_t i = static_cast<std::size_t>(keep); i < found.size(); ++i) {
    const std::error_code failed = remove_directory_whole(found[i].directory);
    if (failed)
      log_warning("cannot remove the old checkpoint {}: {}", found[i].directory.string(),
                  failed.message());
  }
}

std::vector<SavedStep> saved_checkpoints(const fs::path& root) {
  std::vector<SavedStep> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(root, none))
    if (const auto step = step_of(entry.path());
        step && entry.is_directory(none) && !fs::is_empty(entry.path(), none))
      found.push_back({*step, entry.path()});
  std::ranges::sort(found, std::greater<>(), &SavedStep::step);
  return found;
}

std::optional<fs::path> newest_checkpoint(const fs::path& root) {
  const std::vector<SavedStep> found = saved_checkpoints(root);
  if (found.empty()) return std::nullopt;
  return found.front().directory;
}

SavedSteps saved_steps(const fs::path& root) {
  const std::vector<SavedStep> found = saved_checkpoints(root);
  SavedSteps steps;
  steps.count = std::ssize(found);
  if (!found.empty()) steps.newest = found.front().step;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(root, none)) {
    if (!is_unfinished_directory(entry.path())) continue;
    for (const auto& file : fs::recursive_directory_iterator(entry.path(), none))
      if (file.is_regular_file(none))
        steps.unfinished_bytes += static_cast<std::int64_t>(file.file_size(none));
  }
  return steps;
}

void remove_unfinished_saves(const fs::path& root) {
  std::error_code none;
  std::vector<fs::path> leftovers;
  for (const auto& entry : fs::directory_iterator(root, none))
    if (is_unfinished_directory(entry.path())) leftovers.push_back(entry.path());
  for (const fs::path& path : leftovers) {
    log_info("removing {}: a save that was cut short", path.string());
    fs::remove_all(path, none);
  }
}

TrainState read_checkpoint_state(const fs::path& directory) {
  const fs::path path = directory / kStateDirectory / kStateFile;
  if (!fs::exists(path))
    throw Error(fmt::format("{}: no {}/{}", directory.string(), kStateDirectory, kStateFile),
                "this is no checkpoint to resume from; name one that longstride saved");
  const SavedState saved = parse_state_text(read_text(path), directory);
  for (const ListedFile& listed : saved.files) {
    const fs::path file = directory / listed.name;
    if (!fs::exists(file)) fail_damaged(directory, fmt::format("{} is missing", listed.name));
    const auto bytes = static_cast<std::int64_t>(fs::file_size(file));
    if (bytes != listed.bytes)
      fail_damaged(directory, fmt::format("{} has {} bytes, {} were written", listed.name, bytes,
                                          listed.bytes));
    if (fmt::format("{:016x}", checksum_of_file(file)) != listed.xxh3)
      fail_damaged(directory, fmt::format("{} does not match its checksum", listed.name));
  }
  return saved.state;
}

namespace {

// One, or one for every layer.
std::vector<fs::path> optimizer_files(const fs::path& directory) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("optimizer") && name.ends_with(".safetensors"))
      files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

}  // namespace

void load_optimizer(const fs::path& directory, const ParameterSet& weights, Optimizer& optimizer) {
  const SafetensorsReader reader =
      SafetensorsReader::open_files(optimizer_files(directory / kStateDirectory));
  std::map<std::pair<std::int64_t, std::int64_t>, std::string> names;  // by column and parameter
  // Check all of them before the first byte is changed.
  for (const StateTensor& tensor : state_tensors(weights.specs(), optimizer.state().columns())) {
    const std::string& name = tensor.tensor.name;
    if (!reader.contains(name))
      fail_damaged(directory, fmt::format("{} has no tensor {}", kStateDirectory, name));
    const std::int64_t bytes = std::ssize(reader.bytes(name));
    if (bytes != tensor.bytes())
      fail_damaged(directory, fmt::format("{} in {} has {} bytes, not {}", name, kStateDirectory,
                                          bytes, tensor.bytes()));
    names[{tensor.column, tensor.parameter}] = name;
  }
  const StateShard& shard = optimizer.shard();
  optimizer.state().load([&](std::int64_t column, std::int64_t parameter) {
    const StateColumn& in = optimizer.state().columns()[static_cast<std::size_t>(column)];
    const std::int64_t first = shard.first[static_cast<std::size_t>(parameter)];
    return reader.bytes(names.at({column, parameter}))
        .subspan(static_cast<std::size_t>(in.bytes(first)),
                 static_cast<std::size_t>(in.bytes(shard.elements(parameter))));
  });
}

}  // namespace longstride
