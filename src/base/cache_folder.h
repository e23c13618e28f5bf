// Where the program caches what it measured on this machine.
#pragma once

#include <filesystem>
#include <optional>

namespace longstride {

// $LONGSTRIDE_CACHE, else $XDG_CACHE_HOME/longstride, else ~/.cache/longstride. Nothing if
// LONGSTRIDE_CACHE is "off", or if the environment names no folder. It need not exist.
std::optional<std::filesystem::path> cache_folder();

}  // namespace longstride
