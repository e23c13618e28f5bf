#include "train/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;
constexpr int kFormat = 1;
constexpr const char* kStateDirectory = "state";
constexpr const char* kStateFile = "state.json";
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

std::vector<std::pair<std::int64_t, fs::path>> checkpoints_in(const fs::path& root) {
  std::vector<std::pair<std::int64_t, fs::path>> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(root, none))
    if (const auto step = step_of(entry.path()); step && entry.is_directory())
      found.emplace_back(*step, entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

// Prefix of each part's tensors, in the order they are written.
std::vector<std::pair<std::string, StatePart>> state_parts(const Optimizer& optimizer) {
  std::vector<std::pair<std::string, StatePart>> parts = {
      {"first_moment.", StatePart::kFirstMoment}, {"second_moment.", StatePart::kSecondMoment}};
  if (optimizer.has_masters()) parts.emplace_back("master.", StatePart::kMaster);
  return parts;
}

WrittenFile write_optimizer(const fs::path& path, const std::vector<ParameterSpec>& specs,
                            Optimizer& optimizer) {
  std::vector<TensorToWrite> tensors;
  std::vector<std::pair<StatePart, std::int64_t>> from;
  for (const auto& [prefix, part] : state_parts(optimizer))
    for (std::size_t i = 0; i < specs.size(); ++i) {
      tensors.push_back({prefix + specs[i].name, DType::kF32, specs[i].shape});
      from.emplace_back(part, i);
    }
  return write_safetensors_file(path, tensors, [&](std::int64_t index, const ByteSink& sink) {
    const auto& [part, i] = from[static_cast<std::size_t>(index)];
    optimizer.state().read(part, i, sink);
  });
}

void drop_old(const fs::path& root, std::int64_t keep) {
  auto found = checkpoints_in(root);
  while (keep > 0 && static_cast<std::int64_t>(found.size()) > keep) {
    std::error_code failed;
    fs::remove_all(found.front().second, failed);
    if (failed)
      log_warning("cannot remove the old checkpoint {}: {}", found.front().second.string(),
                  failed.message());
    found.erase(found.begin());
  }
}

[[noreturn]] void damaged(const fs::path& directory, const std::string& what) {
  throw Error(fmt::format("checkpoint {} is damaged: {}", directory.string(), what),
              "restore it from a copy, or remove this directory to resume from the one before it");
}

}  // namespace

fs::path save_checkpoint(const fs::path& root, const TrainState& state, const ModelConfig& config,
                         const ParameterSet& weights, Optimizer& optimizer,
                         const std::optional<fs::path>& source, std::int64_t keep) {
  make_writable_directory(root);
  fs::path target = root / fmt::format("step-{}", state.step);
  DirectoryWriter writer(target);
  std::vector<WrittenFile> files = write_model_directory(writer.path(), config, weights, source);
  const fs::path state_directory = writer.path() / kStateDirectory;
  make_writable_directory(state_directory);
  WrittenFile moments =
      write_optimizer(state_directory / kOptimizerFile, weights.specs(), optimizer);
  moments.name = fmt::format("{}/{}", kStateDirectory, kOptimizerFile);
  files.push_back(moments);

  OrderedJson json = {{"format", kFormat},
                      {"step", state.step},
                      {"data_position", state.data_position},
                      {"seed", state.seed},
                      {"numerics", to_json(state.numerics)},
                      {"config", state.config},
                      {"data_digest", state.data_digest}};
  for (const WrittenFile& file : files)
    json["files"][file.name] = {{"bytes", file.bytes},
                                {"xxh3", fmt::format("{:016x}", file.checksum)}};
  // The list of checksums ends with one of itself, over the text before it.
  FileWriter state_file(state_directory / kStateFile);
  state_file.write(dump_json(json, 2) + "\n");
  const std::uint64_t own = state_file.checksum();
  state_file.write(fmt::format("{:016x}\n", own));
  state_file.finish();
  writer.commit();
  drop_old(root, keep);
  return target;
}

std::optional<fs::path> newest_checkpoint(const fs::path& root) {
  const auto found = checkpoints_in(root);
  if (found.empty()) return std::nullopt;
  return found.back().second;
}

SavedSteps saved_steps(const fs::path& root) {
  const auto found = checkpoints_in(root);
  SavedSteps steps;
  steps.count = std::ssize(found);
  if (!found.empty()) steps.newest = found.back().first;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(root, none)) {
    if (!is_unfinished_directory(entry.path())) continue;
    for (const auto& file : fs::recursive_directory_iterator(entry.path(), none))
      if (file.is_regular_file(none))
        steps.unfinished_bytes += static_cast<std::int64_t>(file.file_size(none));
  }
  return steps;
}

std::optional<fs::path> checkpoint_to_resume(const fs::path& root, bool resume) {
  std::error_code none;
  if (fs::exists(root, none) && !fs::is_directory(root, none))
    throw Error(fmt::format("{} is no directory", root.string()),
                "choose another checkpoint.directory");
  std::optional<fs::path> newest = newest_checkpoint(root);
  if (newest && !resume)
    throw Error(fmt::format("{} already holds {}", root.string(), newest->filename().string()),
                "add --resume to go on from it, or choose another checkpoint.directory");
  return newest;
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
  const std::string text = read_text(path);
  const std::size_t split = text.size() >= 17 ? text.size() - 17 : 0;
  if (text.size() < 18 ||
      fmt::format("{:016x}\n", checksum_of_text(text.substr(0, split))) != text.substr(split))
    damaged(directory, fmt::format("{} does not match its checksum", kStateFile));
  TrainState state;
  try {
    const OrderedJson json = OrderedJson::parse(text.substr(0, split));
    if (json.at("format") != kFormat)
      throw Error(fmt::format("{}: format {}, this longstride reads {}", path.string(),
                              json.at("format").dump(), kFormat),
                  "use the version that wrote it");
    json.at("step").get_to(state.step);
    json.at("data_position").get_to(state.data_position);
    json.at("seed").get_to(state.seed);
    state.numerics = numerics_from_json(Json::parse(json.at("numerics").dump()), path.string());
    state.config = json.at("config");
    state.data_digest = json.value("data_digest", "");
    for (const auto& [name, facts] : json.at("files").items()) {
      const fs::path file = directory / name;
      if (!fs::exists(file)) damaged(directory, fmt::format("{} is missing", name));
      const auto bytes = static_cast<std::int64_t>(fs::file_size(file));
      if (facts.at("bytes") != bytes)
        damaged(directory, fmt::format("{} has {} bytes, {} were written", name, bytes,
                                       facts.at("bytes").dump()));
      if (facts.at("xxh3") != fmt::format("{:016x}", checksum_of_file(file)))
        damaged(directory, fmt::format("{} does not match its checksum", name));
    }
  } catch (const OrderedJson::exception& e) {
    damaged(directory, e.what());
  }
  return state;
}

void load_optimizer(const fs::path& directory, const ParameterSet& weights, Optimizer& optimizer) {
  const SafetensorsReader reader =
      SafetensorsReader::open_file(directory / kStateDirectory / kOptimizerFile);
  const auto parts = state_parts(optimizer);
  const auto tensor_name = [&](std::size_t part, std::size_t i) {
    return parts[part].first + weights.specs()[i].name;
  };
  // All of them, before the first byte is changed.
  for (std::size_t part = 0; part < parts.size(); ++part)
    for (std::size_t i = 0; i < weights.specs().size(); ++i) {
      const std::string name = tensor_name(part, i);
      if (!reader.contains(name))
        damaged(directory, fmt::format("{} has no tensor {}", kOptimizerFile, name));
      const std::int64_t bytes = std::ssize(reader.bytes(name)),
                         expected = weights.specs()[i].shape.elements() * size_of(DType::kF32);
      if (bytes != expected)
        damaged(directory, fmt::format("{} in {} has {} bytes, not {}", name, kOptimizerFile, bytes,
                                       expected));
    }
  optimizer.state().load([&](StatePart part, std::int64_t i) {
    return reader.bytes(tensor_name(static_cast<std::size_t>(part), static_cast<std::size_t>(i)));
  });
}

}  // namespace longstride
