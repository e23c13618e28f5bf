// The demo's task: facts are stated once, and asked for thousands of tokens later.
//
//   document = [one fact per key, in random order] [noise] [question, answer, question, ...]
//
// A fact is one token that encodes a key and a value; a question names a key; the answer is its
// value. Only answers are targets, so the accuracy of a step is the share of facts recalled.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>

#include "model/config.h"

namespace longstride::cli {

struct RecallTask {
  std::int64_t keys = 16, values = 8, noise_tokens = 64;
  std::int64_t context = 4096;
  std::int64_t most_questions = 512;  // per document; keys repeat
  // Half of a short document is noise too, so that the noise of long documents is not new.
  std::int64_t questions(std::int64_t length) const {
    return std::min(most_questions, (length - keys) / 4);
  }

  std::int64_t vocabulary() const { return keys * values + keys + values + noise_tokens; }
};

// A small Llama for the task, with random weights, as a Hugging Face directory.
void write_recall_model(const std::filesystem::path& directory, const RecallTask& task,
                        std::uint64_t seed);

// Documents grow: the first samples hold many short ones, so that the model learns lookup before
// distance. Then lengths double in small steps, up to the whole context.
std::int64_t document_length(const RecallTask& task, std::int64_t sample, std::int64_t samples);

// Token file (u32), loss mask and document index for `samples` samples of one context each.
struct RecallData {
  std::filesystem::path tokens, loss_mask, document_index;
};
RecallData write_recall_data(const std::filesystem::path& directory, const RecallTask& task,
                             std::int64_t samples, std::uint64_t seed);

}  // namespace longstride::cli
