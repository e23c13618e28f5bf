// Reads and writes PEFT's adapter directories: adapter_config.json and adapter_model.safetensors.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "model/adapter_config.h"
#include "model/adapter_modules.h"
#include "model/config.h"
#include "model/model_directory.h"
#include "model/safetensors_reader.h"

namespace longstride {

// An adapter whose config and tensors (names, shapes, types, values) have been checked against a
// model. Immutable after construction, so any thread may read it.
class AdapterDirectory {
 public:
  // Reads the whole file once. Throws Error that names the file and the field or tensor if one is
  // missing, unexpected, of the wrong shape, not finite, or of a type other than F32, F16 and BF16.
  static AdapterDirectory open(const std::filesystem::path& path, const ModelConfig& model);

  const std::filesystem::path& path() const { return path_; }
  const AdapterConfig& config() const { return config_; }
  // In the order of adapter_tensors().
  const std::vector<AdapterTensor>& tensors() const { return tensors_; }
  const SafetensorsReader& reader() const { return reader_; }
  // The tensor of a parameter (AdapterTensor::parameter), or null.
  const AdapterTensor* find(std::string_view parameter) const;

  // A copy as floats, row-major.
  std::vector<float> floats(const AdapterTensor& tensor) const;
  // Copies it into `to` on `device`, of the same shape, F32 or the file's type. Called by the
  // thread that owns the device's stream.
  void load(const AdapterTensor& tensor, Device& device, const View& to) const;

 private:
  AdapterDirectory(std::filesystem::path path, AdapterConfig config,
                   std::vector<AdapterTensor> tensors, SafetensorsReader reader);
  void check_names() const;
  void check_shapes() const;
  void check_values() const;
  void check_tied(const ModelConfig& model) const;

  std::filesystem::path path_;
  AdapterConfig config_;
  std::vector<AdapterTensor> tensors_;
  SafetensorsReader reader_;
};

// Writes adapter_config.json and adapter_model.safetensors into the existing `directory`. `weights`
// holds the tensors of adapter_tensors(), under their names in the file, in any order. Refuses
// values that are not finite. Not atomic: DirectoryWriter (base/files.h) provides that. Returns
// every file written.
std::vector<WrittenFile> write_adapter_directory(const std::filesystem::path& directory,
                                                 const AdapterConfig& config,
                                                 const TensorsToWrite& weights);

}  // namespace longstride
