// TextFiles: plain text by bytes (vocabulary 256). Each file is one document. A file is open only
// while it is read, so that a directory may hold any number of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "data/corpus.h"
#include "data/own_outputs.h"

namespace longstride {

class TextFiles final : public Corpus {
 public:
  // A path is a file or a directory; a directory stands for all regular files below it, in the
  // order of their names, except hidden and empty ones and the run's outputs, which are logged.
  // Throws Error if a named file is missing, empty or an output, or if a directory has no text.
  explicit TextFiles(const std::vector<std::filesystem::path>& paths,
                     const RunOutputs& outputs = {});

  std::int64_t tokens() const override { return starts_.back(); }
  void read_values(std::int64_t begin, std::span<std::uint32_t> out) const override;
  std::int64_t document_end(std::int64_t token, std::int64_t limit) const override;
  void document_ends(std::int64_t begin, std::int64_t end, std::span<const std::uint32_t> values,
                     std::vector<std::int64_t>& ends) const override;
  void read_mask(std::int64_t begin, std::span<std::uint8_t> out) const override;
  bool has_mask() const override { return false; }
  std::vector<TokenRange> token_files() const override { return {}; }
  void check_vocabulary(std::int64_t vocabulary) const override;
  std::string locate(std::int64_t token) const override;

 private:
  void add(const std::filesystem::path& path, std::int64_t size);
  // Returns the outputs that it skipped.
  std::vector<std::filesystem::path> add_directory(const std::filesystem::path& directory,
                                                   const OwnOutputs& outputs);
  std::size_t file_of(std::int64_t token) const;

  std::vector<std::filesystem::path> files_;
  std::vector<std::int64_t> starts_{
      0};  // starts_[i] = first token of file i; one more than there are files
};

}  // namespace longstride
