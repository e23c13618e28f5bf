// The text of a checkpoint's state/state.json, independent of the other files. The format is
// described in docs/checkpoint.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "schedule/numerics.h"

namespace longstride {

// The state of a run, without tensors.
struct TrainState {
  std::int64_t step = 0;  // steps done
  // Steps that changed the weights: a step that is not finite may be skipped.
  std::int64_t updates = 0;
  std::int64_t skipped_in_a_row = 0;
  // The next step had a loss or gradients that are not finite, which ended the run.
  bool next_is_nonfinite = false;
  std::int64_t data_position = 0;  // samples consumed
  // Whether a stub at the end of an epoch is no sample (SampleOptions::drop_stub). False in a
  // checkpoint from before there was a choice.
  bool drops_stub = false;
  std::uint64_t seed = 0;
  NumericsRecord numerics;
  OrderedJson config;        // the effective configuration, to detect changes on resume
  std::string data_digest;   // corpus_digest; empty in a checkpoint that was saved without it
  std::string model_digest;  // with adapters: of the model that they belong to
};

inline constexpr int kCheckpointFormat = 1;
inline constexpr const char* kStateDirectory = "state";
inline constexpr const char* kStateFile = "state.json";

// A file of the checkpoint as it was written.
struct ListedFile {
  std::string name;  // below the checkpoint's directory
  std::int64_t bytes = 0;
  std::string xxh3;  // 16 hexadecimal digits
};

struct SavedState {
  TrainState state;
  std::vector<ListedFile> files;
};

// Checks the text against the checksum at its end, and everything that needs no other file.
// `directory`, the checkpoint's, is for messages. For any text, throws nothing but Error.
SavedState parse_state_text(std::string_view text, const std::filesystem::path& directory);

// Throws an Error that says that the checkpoint is damaged.
[[noreturn]] void fail_damaged(const std::filesystem::path& directory, const std::string& what);

}  // namespace longstride
