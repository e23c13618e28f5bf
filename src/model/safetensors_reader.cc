#include "model/safetensors_reader.h"

#include <set>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "model/host_values.h"

namespace longstride {
namespace {

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

// weight_map of the index, checked: tensor -> file name.
std::map<std::string, std::string> read_index(const std::filesystem::path& path) {
  const Json index = read_json(path);
  const std::string hint = "the index is damaged; fetch or write the model again";
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
    throw Error(fmt::format("{}: weight_map is missing or is not an object", path.string()), hint);
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    if (!file.is_string())
      throw Error(fmt::format("{}: weight_map.{} is not a file name", path.string(), tensor), hint);
    const auto name = file.get<std::string>();
    if (name.empty() || name == "." || name == ".." ||
        name.find_first_of("/\\") != std::string::npos || name.find('\0') != std::string::npos)
      throw Error(
          fmt::format(
              "{}: weight_map.{} names the file \"{}\", which is not in the model directory",
              path.string(), tensor, name),
          "shards must lie beside the index");
    files[tensor] = name;
  }
  if (files.empty()) throw Error(fmt::format("{}: weight_map is empty", path.string()), hint);
  return files;
}

}  // namespace

SafetensorsReader SafetensorsReader::open_file(const std::filesystem::path& path) {
  SafetensorsReader reader;
  reader.where_ = path.string();
  reader.add_file(path);
  return reader;
}

SafetensorsReader SafetensorsReader::open_files(const std::vector<std::filesystem::path>& paths) {
  SafetensorsReader reader;
  for (const std::filesystem::path& path : paths) {
    if (reader.where_.empty()) reader.where_ = path.parent_path().string();
    reader.add_file(path);
  }
  return reader;
}

SafetensorsReader SafetensorsReader::open_model(const std::filesystem::path& directory) {
  SafetensorsReader reader;
  reader.where_ = directory.string();
  // A single file wins over an index, as in transformers.
  if (std::filesystem::exists(directory / kSingle)) {
    reader.add_file(directory / kSingle);
    return reader;
  }
  const std::filesystem::path index_path = directory / kIndex;
  if (!std::filesystem::exists(index_path)) {
    const bool has_bin = std::filesystem::exists(directory / "pytorch_model.bin") ||
                         std::filesystem::exists(directory / "pytorch_model.bin.index.json");
    throw Error(fmt::format("{}: neither {} nor {}", directory.string(), kSingle, kIndex),
                has_bin ? "the weights are in PyTorch's own format; convert them with "
                          "transformers' save_pretrained"
                        : "a model is a Hugging Face directory with config.json and safetensors");
  }
  const auto index = read_index(index_path);
  std::set<std::string> shards;
  for (const auto& [tensor, file] : index) shards.insert(file);
  for (const std::string& shard : shards) {
    if (!std::filesystem::exists(directory / shard))
      throw Error(fmt::format("{}: shard {} is missing", index_path.string(), shard),
                  "fetch the missing file into the model directory");
    reader.add_file(directory / shard);
  }
  for (const auto& [tensor, file] : index) {
    const auto it = reader.entries_.find(tensor);
    if (it == reader.entries_.end() || reader.files_[it->second.file].path().filename() != file)
      throw Error(fmt::format("{}: tensor {} is listed in {}, but is not in that file",
                              index_path.string(), tensor, file),
                  "index and shards do not belong together; fetch or write the model again");
  }
  for (const auto& [tensor, entry] : reader.entries_)
    if (!index.contains(tensor))
      throw Error(fmt::format("{}: tensor {} of {} is not listed", index_path.string(), tensor,
                              reader.files_[entry.file].path().filename().string()),
                  "index and shards do not belong together; fetch or write the model again");
  return reader;
}

void SafetensorsReader::add_file(const std::filesystem::path& path) {
  MappedFile file(path);
  SafetensorsHeader header = parse_safetensors(file.bytes(), path.string());
  for (TensorInfo& info : header.tensors) {
    const std::string name = info.name;
    const auto [it, added] = entries_.try_emplace(name, Entry{files_.size(), std::move(info)});
    if (!added)
      throw Error(fmt::format("{}: tensor {} is in {} as well", path.string(), name,
                              files_[it->second.file].path().string()),
                  "a tensor belongs into one shard; write the model again");
  }
  metadata_.merge(header.metadata);
  files_.push_back(std::move(file));
}

const SafetensorsReader::Entry& SafetensorsReader::find(std::string_view name) const {
  const auto it = entries_.find(name);
  if (it != entries_.end()) return it->second;
  const std::string near = nearest(name, names());
  throw Error(fmt::format("{}: there is no tensor {}", where_, name),
              near.empty() ? "" : fmt::format("there is one named {}", near));
}

std::vector<std::string> SafetensorsReader::names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

bool SafetensorsReader::contains(std::string_view name) const { return entries_.contains(name); }

const TensorInfo& SafetensorsReader::info(std::string_view name) const { return find(name).info; }

const std::filesystem::path& SafetensorsReader::file_of(std::string_view name) const {
  return files_[find(name).file].path();
}

std::span<const std::byte> SafetensorsReader::bytes(std::string_view name) const {
  const Entry& entry = find(name);
  if (!entry.info.dtype)
    throw Error(
        fmt::format("{}: tensor {} has dtype {}, which is not supported",
                    files_[entry.file].path().string(), name, entry.info.dtype_name),
        "longstride reads F32, F16 and BF16 weights; quantized ones must be converted first");
  return files_[entry.file].bytes().subspan(static_cast<std::size_t>(entry.info.begin),
                                            static_cast<std::size_t>(entry.info.bytes));
}

std::vector<float> SafetensorsReader::read_floats(std::string_view name) const {
  const std::span<const std::byte> source = bytes(name);
  const DType dtype = *info(name).dtype;
  if (dtype != DType::kF32 && dtype != DType::kF16 && dtype != DType::kBF16 && dtype != DType::kF64)
    throw Error(fmt::format("{}: tensor {} has dtype {}, which is not a floating-point one",
                            file_of(name).string(), name, name_of(dtype)));
  std::vector<float> out(source.size() / static_cast<std::size_t>(size_of(dtype)));
  load_floats(source.data(), dtype, out);
  return out;
}

std::int64_t SafetensorsReader::total_bytes() const {
  std::int64_t total = 0;
  for (const auto& [name, entry] : entries_) total += entry.info.bytes;
  return total;
}

}  // namespace longstride
