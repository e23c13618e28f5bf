// A checkpoint that all ranks of a run write together, each the files of its own layers. Files are
// cut by layers, never by ranks: the embedding, each layer, and the final norm with the head. With
// adapters, rank 0 writes the one file that PEFT reads. Rank 0 makes the directory, and renames it
// when all files are on the disk.
#pragma once

#include <filesystem>
#include <vector>

#include "comm/message_link.h"
#include "train/checkpoint.h"

namespace longstride {

// As save_checkpoint. All ranks call it with the tensors of their layers; `parameters` are those of
// the whole model. If a rank fails, all throw the same Error, which names it, and nothing is left
// behind. Throws RankFailed if a rank has gone.
std::filesystem::path save_on_ranks(comm::MessageLink& link, const std::filesystem::path& root,
                                    const CheckpointContents& mine,
                                    const std::vector<ParameterSpec>& parameters);

}  // namespace longstride
