// Opens directories that `longstride prepare` wrote (docs/data.md, "Prepared directories").
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "data/corpus.h"

namespace longstride {

// One split of the directory: "train" or "eval"; "train" in place of an "eval" that is not there.
// Checks the manifest and the sizes of all files; contents are left to check_file. Throws Error.
std::shared_ptr<const Corpus> open_prepared(const std::filesystem::path& directory,
                                            const std::string& split);

}  // namespace longstride
