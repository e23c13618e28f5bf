// The options by which `eval` and `gradients` name tokens.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>

#include "data/corpus.h"

namespace longstride::cli {

struct TokenOptions {
  std::string file, format, document_index, loss_mask;
  std::int64_t document_token = -1;  // none
};

// Adds --format.
void add_format_option(CLI::App& command, std::string& format);
// Adds --tokens, --format, --document-token, --document-index and --loss-mask. `options` must
// outlive the parser; `tokens` describes the file.
void add_token_options(CLI::App& command, TokenOptions& options, const std::string& tokens);

// All of the file, or one split of a prepared directory, whose checksums are compared.
std::shared_ptr<const Corpus> open_tokens(const TokenOptions& options, const std::string& split);

}  // namespace longstride::cli
