#include "model/adapter_directory.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "model/host_values.h"
#include "model/written_file.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

SafetensorsReader open_weights(const fs::path& directory) {
  const fs::path path = directory / kAdapterWeights;
  if (fs::exists(path)) return SafetensorsReader::open_file(path);
  const bool pickled = fs::exists(directory / "adapter_model.bin");
  throw Error(fmt::format("{}: no such file", path.string()),
              pickled ? "adapter_model.bin cannot be read; load the adapter with PEFT and save it "
                        "with safe_serialization=True"
                      : "an adapter is a directory that PEFT or longstride saved, with "
                        "adapter_config.json and adapter_model.safetensors");
}

std::string another_model(const AdapterConfig& config) {
  std::string hint = "the adapter was trained on another model, or adapter_config.json was changed";
  if (!config.base_model.empty()) hint += fmt::format("; it names {}", config.base_model);
  return hint;
}

}  // namespace

AdapterDirectory::AdapterDirectory(fs::path path, AdapterConfig config,
                                   std::vector<AdapterTensor> tensors, SafetensorsReader reader)
    : path_(std::move(path)),
      config_(std::move(config)),
      tensors_(std::move(tensors)),
      reader_(std::move(reader)) {}

AdapterDirectory AdapterDirectory::open(const fs::path& path, const ModelConfig& model) {
  if (!fs::is_directory(path))
    throw Error(fmt::format("{}: no such directory", path.string()),
                "an adapter is a directory with adapter_config.json and adapter_model.safetensors");
  AdapterConfig config = read_adapter_config(path, model);
  std::vector<AdapterTensor> tensors =
      adapter_tensors(config, model, (path / kAdapterConfig).string());
  AdapterDirectory directory(path, std::move(config), std::move(tensors), open_weights(path));
  directory.check_names();
  directory.check_shapes();
  directory.check_values();
  directory.check_tied(model);
  return directory;
}

void AdapterDirectory::check_names() const {
  const std::string where = (path_ / kAdapterWeights).string();
  std::set<std::string> expected;
  std::vector<std::string> missing, unexpected;
  for (const AdapterTensor& tensor : tensors_) {
    expected.insert(tensor.name);
    if (!reader_.contains(tensor.name)) missing.push_back(tensor.name);
  }
  for (const std::string& name : reader_.names())
    if (!expected.contains(name)) unexpected.push_back(name);
  if (!missing.empty())
    throw Error(fmt::format("{}: missing tensors: {}", where, some_of(missing)),
                another_model(config_));
  if (!unexpected.empty())
    throw Error(fmt::format("{}: tensors that {} and this model do not ask for: {}", where,
                            kAdapterConfig, some_of(unexpected)),
                another_model(config_));
}

void AdapterDirectory::check_shapes() const {
  const std::string where = (path_ / kAdapterWeights).string();
  for (const AdapterTensor& tensor : tensors_) {
    const TensorInfo& info = reader_.info(tensor.name);
    if (!info.dtype || !is_weight_type(*info.dtype))
      throw Error(fmt::format("{}: tensor {} has dtype {}", where, tensor.name, info.dtype_name),
                  "the tensors of an adapter must be F32, F16 or BF16");
    Shape shape;
    if (info.shape.size() <= 4)
      for (const std::int64_t d : info.shape) shape.append(d);
    if (shape != tensor.shape)
      throw Error(fmt::format("{}: tensor {} has shape [{}], but rank {} and this model make it {}",
                              where, tensor.name, fmt::join(info.shape, ", "), config_.rank,
                              tensor.shape.to_string()),
                  another_model(config_));
  }
}

void AdapterDirectory::check_values() const {
  const std::string where = (path_ / kAdapterWeights).string();
  std::vector<std::int64_t> bad(tensors_.size(), -1);
  parallel_for(static_cast<std::int64_t>(tensors_.size()), [&](std::int64_t i) {
    const AdapterTensor& tensor = tensors_[static_cast<std::size_t>(i)];
    bad[static_cast<std::size_t>(i)] =
        first_nonfinite(reader_.bytes(tensor.name).data(), *reader_.info(tensor.name).dtype,
                        tensor.shape.elements());
  });
  for (std::size_t i = 0; i < bad.size(); ++i) {
    if (bad[i] < 0) continue;
    const std::string& name = tensors_[i].name;
    const DType dtype = *reader_.info(name).dtype;
    float value = 0;
    load_floats(reader_.bytes(name).data() + bad[i] * size_of(dtype), dtype, {&value, 1});
    throw Error(fmt::format("{}: tensor {} holds {} at index {}", where, name, value, bad[i]),
                "the adapter is broken; go back to a save from before it was");
  }
}

// The two tensors of a tied embedding are one parameter.
void AdapterDirectory::check_tied(const ModelConfig& model) const {
  if (!model.tied_embeddings || !config_.tie_weights) return;
  const AdapterTensor *embedding = find("model.embed_tokens.weight"),
                      *head = find("lm_head.weight");
  if (embedding == nullptr || floats(*embedding) == floats(*head)) return;
  throw Error(fmt::format("{}: {} differs from {}, though adapter_config.json ties them",
                          (path_ / kAdapterWeights).string(), head->name, embedding->name),
              "set ensure_weight_tying to false in adapter_config.json if they are to differ");
}

const AdapterTensor* AdapterDirectory::find(std::string_view parameter) const {
  const auto it = std::ranges::find(tensors_, parameter, &AdapterTensor::parameter);
  return it == tensors_.end() ? nullptr : &*it;
}

std::vector<float> AdapterDirectory::floats(const AdapterTensor& tensor) const {
  return reader_.read_floats(tensor.name);
}

void AdapterDirectory::load(const AdapterTensor& tensor, Device& device, const View& to) const {
  const DType dtype = *reader_.info(tensor.name).dtype;
  LS_CHECK(to.shape() == tensor.shape, "{} into {}", tensor.name, to.shape().to_string());
  LS_CHECK(to.dtype() == dtype || to.dtype() == DType::kF32, "{} from {} into {}", tensor.name,
           name_of(dtype), name_of(to.dtype()));
  if (to.dtype() == dtype) {
    device.copy_from_host(to.data(), reader_.bytes(tensor.name).data(), to.bytes());
    return;
  }
  const std::vector<float> values = floats(tensor);
  device.copy_from_host(to.data(), values.data(), to.bytes());
}

std::vector<WrittenFile> write_adapter_directory(const fs::path& directory,
                                                 const AdapterConfig& config,
                                                 const TensorsToWrite& weights) {
  const TensorSource checked = [&](std::int64_t i, const ByteSink& sink) {
    const TensorToWrite& tensor = weights.tensors[static_cast<std::size_t>(i)];
    weights.read(i, [&](std::span<const std::byte> bytes) {
      check_finite(bytes, tensor.dtype, tensor.name, "the adapter's weights are");
      sink(bytes);
    });
  };
  std::vector<WrittenFile> written;
  written.push_back(write_safetensors_file(directory / kAdapterWeights, weights.tensors, checked));
  written.push_back(write_json(directory / kAdapterConfig, adapter_config_json(config)));
  return written;
}

}  // namespace longstride
