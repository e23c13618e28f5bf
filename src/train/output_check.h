// Whether a run can write what it will write; asked before it begins, and by a dry run.
#pragma once

#include <filesystem>

#include "train/run_plan.h"

namespace longstride {

// Throws Error where checkpoint.directory or metrics.file could not be written, or, for a run that
// uses memory.disk_path, where that cannot be written or is memory (tmpfs). Warns where it is
// across a network. Makes nothing: of what does not exist yet, the nearest directory above is
// asked.
void check_outputs(const RunPlan& plan);

// The path, or the nearest one above it that exists.
std::filesystem::path nearest_existing(const std::filesystem::path& path);

// What kind of disk a path is on.
enum class DiskKind { kLocal, kMemory, kNetwork };
// By the number that statfs gives for a file system.
DiskKind disk_kind(long file_system);
DiskKind disk_kind_of(const std::filesystem::path& path);  // kLocal where it is not known

}  // namespace longstride
