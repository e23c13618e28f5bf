#include "plan/this_machine.h"

#include <algorithm>

#include "base/cache_folder.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "ops/kernel_libraries.h"
#include "plan/machines.h"

namespace longstride {
namespace fs = std::filesystem;

std::string machine_key(const Device& device) {
  std::string key = device.name() + "; " + ops::kernel_libraries(device);
  if (device.shares_host_memory()) key += fmt::format("; {} threads", thread_count());
  return key;
}

std::optional<fs::path> calibration_file(const Device& device) {
  const std::optional<fs::path> folder = cache_folder();
  if (!folder) return std::nullopt;
  return *folder / "machines" / fmt::format("{:016x}.json", checksum_of_text(machine_key(device)));
}

std::optional<MachineRates> cached_calibration(const Device& device) {
  const std::optional<fs::path> file = calibration_file(device);
  std::error_code none;
  if (!file || !fs::exists(*file, none)) return std::nullopt;
  try {
    const Json json = read_json(*file);
    if (!json.is_object() || !json.contains("key") || !json.contains("rates"))
      throw Error(file->string() + ": not a calibration");
    if (json["key"] != machine_key(device)) return std::nullopt;
    return machine_rates_from_json(json["rates"], file->string());
  } catch (const Error& e) {
    log_warning("{}: the calibration is ignored; longstride calibrate makes it anew", e.what());
    return std::nullopt;
  }
}

std::optional<fs::path> cache_calibration(const Device& device, const MachineRates& rates) {
  std::optional<fs::path> file = calibration_file(device);
  if (!file) return std::nullopt;
  make_writable_directory(file->parent_path());
  const OrderedJson json = {{"key", machine_key(device)}, {"rates", to_json(rates)}};
  write_file_atomic(*file, dump_json(json, 2) + "\n");
  return file;
}

MachineRates estimated_rates(const Device& device) {
  if (const MachineRates* known = machine_with(device.name())) return *known;
  const bool own_memory = !device.shares_host_memory();
  MachineRates rates = own_memory ? find_machine("a100") : cpu_machine(thread_count());
  if (own_memory) {
    rates.source =
        fmt::format("estimate: no rates of {} are known; those of an A100 instead", device.name());
    rates.measured = false;
    rates.host_bytes = device.available_host_bytes();
  }
  rates.name = device.name();
  rates.device_bytes = std::max<std::int64_t>(1, device.used_bytes() + device.available_bytes());
  return rates;
}

MachineRates rates_of_this_machine(const Device& device) {
  const std::optional<MachineRates> cached = cached_calibration(device);
  return cached ? *cached : estimated_rates(device);
}

}  // namespace longstride
