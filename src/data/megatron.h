// Megatron's indexed datasets: PREFIX.bin holds raw tokens, PREFIX.idx says their type and where
// sequences and documents begin.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "data/corpus.h"
#include "data/data_file.h"
#include "data/token_type.h"

namespace longstride {

struct MegatronIndex {
  TokenType type = TokenType::kU16;
  std::int64_t tokens = 0;
  std::vector<std::int64_t> starts;  // first token of each document that is not empty
};

// Reads block by block; holds 8 bytes per document. For any bytes, throws nothing but Error.
MegatronIndex read_megatron_index(const DataFile& file);

// `path` names the .bin, the .idx or their common prefix. The mask is for the .bin, if not empty.
std::shared_ptr<const Corpus> open_megatron(const std::filesystem::path& path,
                                            const std::filesystem::path& loss_mask);

}  // namespace longstride
