// Any bytes as tokens, document index and loss mask: an Error, or samples that are what
// docs/data.md says.
//
// The input is eight bytes of choices, then the three files. They live in memory; a corpus opens
// them by their names under /proc.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <span>

#include "base/error.h"
#include "data/corpus.h"
#include "data/corpus_digest.h"
#include "data/sample_stream.h"

namespace {

using Bytes = std::span<const std::uint8_t>;

void check(bool holds) {
  if (!holds) std::abort();
}

class MemoryFile {
 public:
  MemoryFile() : fd_(::memfd_create("fuzz", MFD_CLOEXEC)) { check(fd_ >= 0); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { ::close(fd_); }
  // The file then holds these bytes alone.
  std::filesystem::path with(Bytes bytes) const {
    check(::ftruncate(fd_, static_cast<off_t>(bytes.size())) == 0);
    check(::pwrite(fd_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
    return fmt::format("/proc/self/fd/{}", fd_);
  }

 private:
  int fd_;
};

class Input {
 public:
  explicit Input(Bytes bytes) : bytes_(bytes) {}
  std::uint8_t byte() { return bytes_.empty() ? std::uint8_t{0} : take(1)[0]; }
  Bytes take(std::size_t count) {
    const Bytes taken = bytes_.first(std::min(count, bytes_.size()));
    bytes_ = bytes_.subspan(taken.size());
    return taken;
  }
  Bytes rest() { return take(bytes_.size()); }

 private:
  Bytes bytes_;
};

void check_sample(const longstride::Sample& s, const longstride::SampleOptions& options) {
  check(s.size() >= 1 && s.size() <= options.context && s.targets.size() == s.tokens.size());
  check(s.counted_targets() >= 1);
  for (std::size_t i = 0; i < s.tokens.size(); ++i) {
    check(s.tokens[i] >= 0 && s.tokens[i] < options.vocabulary);
    check(s.targets[i] == longstride::kNoTarget ||
          (s.targets[i] >= 0 && s.targets[i] < options.vocabulary));
  }
  std::int64_t total = 0;
  for (const std::int64_t length : s.document_lengths()) {
    check(length >= 1);
    total += length;
  }
  check(!s.document_starts.empty() && s.document_starts.front() == 0 && total == s.size());
  check(options.pack != longstride::Packing::kDocuments || s.document_starts.size() == 1);
}

void use(Input input) {
  static const MemoryFile token_file, index_file, mask_file;
  const unsigned choices = input.byte();
  longstride::SampleOptions samples;
  samples.context = 1 + input.byte() % 64;
  samples.pack = (choices & 1) != 0   ? longstride::Packing::kStretches
                 : (choices & 4) != 0 ? longstride::Packing::kWhole
                                      : longstride::Packing::kDocuments;
  samples.shuffle = (choices & 2) != 0;
  samples.seed = input.byte();
  samples.long_documents = static_cast<longstride::LongDocuments>(samples.seed % 3);
  samples.drop_stub = samples.seed % 2 == 1;
  samples.vocabulary = std::int64_t{1} << (input.byte() % 32);
  const std::int64_t document_token = input.byte();
  const std::size_t index_entries = input.byte() % 16, loose_bytes = input.byte() % 8;
  const std::int64_t first = input.byte();

  longstride::CorpusOptions options;
  options.format = (choices & 4) != 0 ? "u16" : (choices & 8) != 0 ? "text" : "u32";
  if ((choices & 16) != 0) options.document_token = document_token;
  if ((choices & 32) != 0)
    options.document_index = index_file.with(input.take(8 * index_entries + loose_bytes % 2));
  Bytes rest = input.rest();
  if ((choices & 64) != 0) {
    // A mask of the right length, or nearly.
    const std::size_t width = options.format == "u16" ? 2 : 4;
    const std::size_t mask_bytes =
        std::min(rest.size(), rest.size() / (width + 1) + loose_bytes / 2);
    options.loss_mask = mask_file.with(rest.first(mask_bytes));
    rest = rest.subspan(mask_bytes);
  }
  options.paths.push_back(token_file.with(rest));
  if ((choices & 128) != 0) options.paths.push_back(options.paths.front());

  const std::shared_ptr<const longstride::Corpus> corpus = longstride::open_corpus(options);
  // It reads 64 pieces of up to 1024 tokens, so not in every input.
  if (samples.seed % 32 == 31 && corpus->tokens() <= 16)
    check(longstride::corpus_digest(*corpus).size() == 16);
  longstride::SampleStream stream(*corpus, samples);
  check(stream.samples_per_epoch() >= 1 && stream.samples_per_epoch() <= corpus->tokens());
  for (std::int64_t i = first; i < first + 4; ++i) check_sample(stream.sample(i), samples);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    use(Input(Bytes(data, size)));
  } catch (const longstride::Error&) {
  }
  return 0;
}
