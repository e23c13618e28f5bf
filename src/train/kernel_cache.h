// Caches measured kernel choices on this machine: while the file exists, two runs of the same
// configuration make the same choices and so compute the same bits.
//
// A JSON file, kernels.json, in the folder for caches (base/cache_folder.h); its first key is the
// device with its libraries. If it cannot be read or
// written, the run warns and continues.
#pragma once

#include <filesystem>
#include <string>

#include "ops/kernel_choices.h"

namespace longstride {

// Empty if the environment names no directory.
std::filesystem::path kernel_cache_file();
ops::KernelChoices remembered_choices(const std::filesystem::path& file,
                                      const std::string& machine);
// Adds `choices` to the file and returns the file's entries for them: a choice that another run
// wrote first wins. Keeps other machines' entries.
ops::KernelChoices remember_choices(const std::filesystem::path& file, const std::string& machine,
                                    const ops::KernelChoices& choices);

}  // namespace longstride
