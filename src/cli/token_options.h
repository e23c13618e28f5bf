// The options by which `eval` and `gradients` name tokens.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>

#include "data/corpus.h"

namespace longstride::cli {

struct TokenOptions {
  std::string file, format = "u32", document_index, loss_mask;
  std::int64_t document_token = -1;  // none
};

// Adds --tokens, --format, --document-token, --document-index and --loss-mask. `options` must
// outlive the parser; `tokens` describes the file.
void add_token_options(CLI::App& command, TokenOptions& options, const std::string& tokens);

std::unique_ptr<Corpus> open_tokens(const TokenOptions& options);

}  // namespace longstride::cli
