#include "model/safetensors_writer.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"

namespace longstride {
namespace {

using Indices = std::vector<std::int64_t>;

const TensorToWrite& at(const std::vector<TensorToWrite>& tensors, std::int64_t i) {
  return tensors[static_cast<std::size_t>(i)];
}

std::int64_t bytes_of(const TensorToWrite& t) { return t.shape.elements() * size_of(t.dtype); }

// Wider types first, so that every tensor is aligned to its element size in the file.
void sort_by_width(const std::vector<TensorToWrite>& tensors, Indices& members) {
  std::ranges::stable_sort(members, std::greater<>{},
                           [&](std::int64_t i) { return size_of(at(tensors, i).dtype); });
}

std::string header_of(const std::vector<TensorToWrite>& tensors, const Indices& members,
                      const std::map<std::string, std::string>& metadata) {
  OrderedJson json = OrderedJson::object();
  if (!metadata.empty()) json["__metadata__"] = metadata;
  std::int64_t offset = 0;
  for (const std::int64_t i : members) {
    const TensorToWrite& t = at(tensors, i);
    LS_CHECK(!json.contains(t.name), "two tensors named {}", t.name);
    std::vector<std::int64_t> shape(static_cast<std::size_t>(t.shape.rank()));
    for (int d = 0; d < t.shape.rank(); ++d) shape[static_cast<std::size_t>(d)] = t.shape[d];
    const std::int64_t end = offset + bytes_of(t);
    json[t.name] = {{"dtype", name_of(t.dtype)}, {"shape", shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = dump_json(json);
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

WrittenFile write_members(const std::filesystem::path& path,
                          const std::vector<TensorToWrite>& tensors, Indices members,
                          const TensorSource& source,
                          const std::map<std::string, std::string>& metadata) {
  sort_by_width(tensors, members);
  const std::string header = header_of(tensors, members, metadata);
  std::array<std::byte, 8> length{};
  for (std::size_t i = 0; i < length.size(); ++i)
    length[i] = static_cast<std::byte>((header.size() >> (8 * i)) & 0xff);

  FileWriter writer(path);
  writer.write(length);
  writer.write(header);
  for (const std::int64_t i : members) {
    std::int64_t left = bytes_of(at(tensors, i));
    source(i, [&](std::span<const std::byte> piece) {
      left -= static_cast<std::int64_t>(piece.size());
      LS_CHECK(left >= 0, "{}: {} bytes too many", at(tensors, i).name, -left);
      writer.write(piece);
    });
    LS_CHECK(left == 0, "{}: {} bytes were not given", at(tensors, i).name, left);
  }
  writer.finish();
  return {path.filename().string(), static_cast<std::int64_t>(writer.bytes_written()),
          writer.checksum()};
}

Indices all_of(const std::vector<TensorToWrite>& tensors) {
  Indices members(tensors.size());
  std::iota(members.begin(), members.end(), std::int64_t{0});
  return members;
}

// In the order given, a new shard whenever the next tensor would not fit.
std::vector<Indices> cut_into_shards(const std::vector<TensorToWrite>& tensors, std::int64_t most) {
  std::vector<Indices> shards(1);
  std::int64_t filled = 0;
  for (const std::int64_t i : all_of(tensors)) {
    const std::int64_t bytes = bytes_of(at(tensors, i));
    if (!shards.back().empty() && filled + bytes > most) {
      shards.emplace_back();
      filled = 0;
    }
    shards.back().push_back(i);
    filled += bytes;
  }
  return shards;
}

}  // namespace

WrittenFile write_safetensors_file(const std::filesystem::path& path,
                                   const std::vector<TensorToWrite>& tensors,
                                   const TensorSource& source,
                                   const std::map<std::string, std::string>& metadata) {
  return write_members(path, tensors, all_of(tensors), source, metadata);
}

WrittenFile write_safetensors_part(const std::filesystem::path& path,
                                   const std::vector<TensorToWrite>& tensors,
                                   const std::vector<std::int64_t>& indices,
                                   const TensorSource& source) {
  return write_members(path, tensors, indices, source, {{"format", "pt"}});
}

WrittenFile write_safetensors_index(const std::filesystem::path& directory,
                                    const std::vector<TensorToWrite>& tensors,
                                    const std::map<std::string, std::string>& files) {
  std::int64_t total = 0;
  for (const TensorToWrite& t : tensors) total += bytes_of(t);
  const OrderedJson index = {{"metadata", {{"total_size", total}}}, {"weight_map", files}};
  const std::filesystem::path path = directory / "model.safetensors.index.json";
  FileWriter writer(path);
  writer.write(dump_json(index, 2) + "\n");
  writer.finish();
  return {path.filename().string(), static_cast<std::int64_t>(writer.bytes_written()),
          writer.checksum()};
}

std::vector<WrittenFile> write_safetensors_model(const std::filesystem::path& directory,
                                                 const std::vector<TensorToWrite>& tensors,
                                                 const TensorSource& source,
                                                 std::int64_t max_shard_bytes) {
  LS_CHECK(max_shard_bytes > 0, "shards of {} bytes", max_shard_bytes);
  const std::map<std::string, std::string> metadata{{"format", "pt"}};
  const std::vector<Indices> shards = cut_into_shards(tensors, max_shard_bytes);
  if (shards.size() == 1)
    return {write_members(directory / "model.safetensors", tensors, shards[0], source, metadata)};
  std::vector<WrittenFile> written;
  std::map<std::string, std::string> files;
  for (std::size_t s = 0; s < shards.size(); ++s) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", s + 1, shards.size());
    for (const std::int64_t i : shards[s]) {
      const bool added = files.emplace(at(tensors, i).name, name).second;
      LS_CHECK(added, "two tensors named {}", at(tensors, i).name);
    }
    written.push_back(write_members(directory / name, tensors, shards[s], source, metadata));
  }
  written.push_back(write_safetensors_index(directory, tensors, files));
  return written;
}

}  // namespace longstride
