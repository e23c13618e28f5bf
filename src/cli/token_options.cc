#include "cli/token_options.h"

namespace longstride::cli {

void add_token_options(CLI::App& command, TokenOptions& options, const std::string& tokens) {
  command.add_option("--tokens", options.file, tokens)->required();
  command.add_option("--format", options.format, "of the token file")
      ->check(CLI::IsMember({"u32", "u16", "text"}))
      ->capture_default_str();
  command.add_option("--document-token", options.document_token, "token that ends a document")
      ->check(CLI::NonNegativeNumber);
  command.add_option("--document-index", options.document_index, "file of document starts (u64)");
  command.add_option("--loss-mask", options.loss_mask,
                     "file of one byte per token: 0 where the token is not a target");
}

std::unique_ptr<Corpus> open_tokens(const TokenOptions& options) {
  CorpusOptions corpus;
  corpus.paths = {options.file};
  corpus.format = options.format;
  corpus.document_index = options.document_index;
  corpus.loss_mask = options.loss_mask;
  if (options.document_token >= 0) corpus.document_token = options.document_token;
  return open_corpus(corpus);
}

}  // namespace longstride::cli
