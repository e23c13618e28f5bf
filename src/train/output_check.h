// Checks that a run can write its outputs, before it begins and in a dry run.
#pragma once

#include <filesystem>

#include "train/run_plan.h"

namespace longstride {

// Throws Error if checkpoint.directory or metrics.file could not be written, or, for a run that
// uses memory.disk_path, if that cannot be written or is in memory (tmpfs). Warns if it is on a
// network file system. Creates nothing: for a path that does not exist yet, checks the nearest
// existing directory above it.
void check_outputs(const RunPlan& plan);

// The path, or the nearest one above it that exists.
std::filesystem::path nearest_existing(const std::filesystem::path& path);

// The kind of disk that a path is on.
enum class DiskKind { kLocal, kMemory, kNetwork };
// By the file system's type number from statfs.
DiskKind disk_kind(long file_system);
DiskKind disk_kind_of(const std::filesystem::path& path);  // kLocal if unknown

}  // namespace longstride
