// A checkpoint that all ranks of a run write together, each the files of its own layers. Files are
// cut by layers, never by ranks: the embedding, each layer, and the final norm with the head. With
// adapters, rank 0 writes the one file that PEFT reads. Rank 0 makes the directory, and renames it
// when all files are on the disk.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "base/files.h"
#include "base/json.h"
#include "comm/message_link.h"
#include "train/checkpoint.h"

namespace longstride {

// A save in three parts, of which the long one needs no link, so that another thread may do it:
// begin, write, commit. What is not committed is removed by rank 0's destructor, when its write has
// returned.
class RankSave {
 public:
  // Begins. All ranks call it with the tensors of their layers; `parameters` are those of the whole
  // model. Link, parameters, and what `mine` refers to must outlive it. Throws the same Error on
  // all ranks if there can be no directory.
  RankSave(comm::MessageLink& link, const std::filesystem::path& root,
           const CheckpointContents& mine, const std::vector<ParameterSpec>& parameters);
  RankSave(const RankSave&) = delete;
  RankSave& operator=(const RankSave&) = delete;

  // Writes this rank's files, and reads all that it will send. Calls `on_piece` now and then, which
  // may throw; RankFailed alone gets out, other exceptions are told by commit.
  void write(const std::function<void()>& on_piece);
  // In place of write: this rank cannot.
  void fail(const std::exception_ptr& why);
  // All ranks call it when they have written. Returns where the checkpoint is. If a rank has failed
  // all throw the same Error, which names it. Throws RankFailed if a rank has gone.
  std::filesystem::path commit();

 private:
  comm::MessageLink& link_;
  const CheckpointContents mine_;
  const std::vector<ParameterSpec>& parameters_;
  std::filesystem::path target_, directory_;
  std::optional<DirectoryWriter> writer_;  // of rank 0
  OrderedJson report_;                     // of this rank
  // Adapters of this rank, by tensor: they may change before they are sent.
  std::vector<std::vector<std::byte>> adapters_;
};

// All three parts, on the calling thread; as save_checkpoint.
std::filesystem::path save_on_ranks(comm::MessageLink& link, const std::filesystem::path& root,
                                    const CheckpointContents& mine,
                                    const std::vector<ParameterSpec>& parameters);

}  // namespace longstride
