#include "plan/calibrate.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "ops/kernel_libraries.h"
#include "plan/calibration_parts.h"

namespace longstride {

Calibration calibrate(Device& device, const MachineRates& base, const CalibrationOptions& options) {
  const CalibrationShapes shapes = calibration_shapes(device);
  CalibrationBench bench(device, options.seconds,
                         kMemoryTimings + kProductTimings + kAttentionTimings + kSelectionTimings);
  Calibration result{.rates = base, .not_measured = {"attention.half_tiles", "copies.beside"}};
  MachineRates& rates = result.rates;
  rates.name = device.name();
  rates.measured = true;
  rates.compute = bench.compute();
  rates.device_bytes = std::max(rates.device_bytes, device.used_bytes() + device.available_bytes());
  rates.host_bytes = device.available_host_bytes();
  calibrate_memory(bench, shapes, rates);
  calibrate_products(bench, shapes, rates);
  calibrate_attention(bench, shapes, rates);
  calibrate_selection(bench, shapes, rates);
  calibrate_copies(device, shapes, rates);
  if (options.disk_path.empty())
    result.not_measured.insert(result.not_measured.end(),
                               {"copies.disk_read", "copies.disk_write", "disk_bytes"});
  else
    calibrate_disk(options.disk_path, shapes, rates);
  // A peak that products exceed was not this device's.
  rates.peak_flops = std::max(rates.peak_flops, rates.products.peak);
  rates.source = fmt::format("longstride calibrate: {}, {}; estimated: {}", device.name(),
                             ops::kernel_libraries(device), fmt::join(result.not_measured, ", "));
  result.seconds = bench.elapsed();
  return result;
}

}  // namespace longstride
