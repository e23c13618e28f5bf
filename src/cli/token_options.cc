#include "cli/token_options.h"

#include "data/file_checksums.h"

namespace longstride::cli {

void add_format_option(CLI::App& command, std::string& format) {
  command
      .add_option("--format", format,
                  "of the token file; u32 without it, and a prepared directory says its own")
      ->check(CLI::IsMember({"u32", "u16", "text", "megatron"}));
}

void add_token_options(CLI::App& command, TokenOptions& options, const std::string& tokens) {
  command.add_option("--tokens", options.file, tokens)->required();
  add_format_option(command, options.format);
  command.add_option("--document-token", options.document_token, "token that ends a document")
      ->check(CLI::NonNegativeNumber);
  command.add_option("--document-index", options.document_index, "file of document starts (u64)");
  command.add_option("--loss-mask", options.loss_mask,
                     "file of one byte per token: 0 where the token is not a target");
}

std::shared_ptr<const Corpus> open_tokens(const TokenOptions& options, const std::string& split) {
  CorpusOptions corpus;
  corpus.paths = {options.file};
  corpus.format = options.format;
  corpus.document_index = options.document_index;
  corpus.loss_mask = options.loss_mask;
  if (options.document_token >= 0) corpus.document_token = options.document_token;
  corpus.split = split;
  corpus.keys = {"--format", "--document-token", "--document-index", "--loss-mask"};
  std::shared_ptr<const Corpus> opened = open_corpus(corpus);
  check_files(*opened);
  return opened;
}

}  // namespace longstride::cli
