// The parts of a calibration. Each measures what it names and sets the rates of it; later ones
// read the rates that earlier ones set.
#pragma once

#include <filesystem>

#include "plan/calibration_bench.h"
#include "plan/machine_rates.h"

namespace longstride {

// memory, update, task_overhead.
inline constexpr int kMemoryTimings = 3;
void calibrate_memory(CalibrationBench& bench, const CalibrationShapes& shapes,
                      MachineRates& rates);
// products, gradient_sums, loss_head.
inline constexpr int kProductTimings = 9;
void calibrate_products(CalibrationBench& bench, const CalibrationShapes& shapes,
                        MachineRates& rates);
// attention, except half_tiles.
inline constexpr int kAttentionTimings = 16;
void calibrate_attention(CalibrationBench& bench, const CalibrationShapes& shapes,
                         MachineRates& rates);
// page_scores.
inline constexpr int kSelectionTimings = 1;
void calibrate_selection(CalibrationBench& bench, const CalibrationShapes& shapes,
                         MachineRates& rates);
// copies, except the disk's and `beside`; host_sleep.
void calibrate_copies(Device& device, const CalibrationShapes& shapes, MachineRates& rates);
// The disk's copies and bytes. Throws Error if the folder cannot be written.
void calibrate_disk(const std::filesystem::path& folder, const CalibrationShapes& shapes,
                    MachineRates& rates);

}  // namespace longstride
