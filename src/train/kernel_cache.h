// Measured choices of kernels, remembered from run to run on this machine: as long as the file
// stays, two runs of the same configuration get the same ones, and so the same bits.
//
// A JSON file, kernels.json, in $LONGSTRIDE_CACHE, else $XDG_CACHE_HOME/longstride, else
// ~/.cache/longstride; its first key is the device with its libraries. Where it cannot be read or
// written a warning says so, and the run goes on.
#pragma once

#include <filesystem>
#include <string>

#include "ops/kernel_choices.h"

namespace longstride {

// Empty where the environment names no place.
std::filesystem::path kernel_cache_file();
ops::KernelChoices remembered_choices(const std::filesystem::path& file,
                                      const std::string& machine);
// Adds to what the file holds, and gives what it holds for `choices` then: where another run was
// quicker, its choice stands. Other machines' entries stay.
ops::KernelChoices remember_choices(const std::filesystem::path& file, const std::string& machine,
                                    const ops::KernelChoices& choices);

}  // namespace longstride
