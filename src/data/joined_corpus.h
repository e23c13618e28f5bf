// JoinedCorpus: several corpora concatenated. No document crosses the end of a part. Thread-safe
// like its parts.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/corpus.h"

namespace longstride {

class JoinedCorpus final : public Corpus {
 public:
  // At least one part, none empty.
  explicit JoinedCorpus(std::vector<std::shared_ptr<const Corpus>> parts);

  std::int64_t tokens() const override { return starts_.back(); }
  void read_values(std::int64_t begin, std::span<std::uint32_t> out) const override;
  std::int64_t document_end(std::int64_t token, std::int64_t limit) const override;
  void document_ends(std::int64_t begin, std::int64_t end, std::span<const std::uint32_t> values,
                     std::vector<std::int64_t>& ends) const override;
  void read_mask(std::int64_t begin, std::span<std::uint8_t> out) const override;
  bool has_mask() const override;
  void read_weights(std::int64_t begin, std::span<float> out) const override;
  bool has_weights() const override;
  std::vector<TokenRange> token_files() const override;
  std::vector<CheckedFile> checked_files() const override;
  void check_vocabulary(std::int64_t vocabulary) const override;
  std::string locate(std::int64_t token) const override;

 private:
  std::size_t part_of(std::int64_t token) const;
  // Calls f(part, begin within the part, offset into the range, count) for each part that the range
  // touches.
  template <class F>
  void for_parts(std::int64_t begin, std::int64_t count, const F& f) const;

  std::vector<std::shared_ptr<const Corpus>> parts_;
  std::vector<std::int64_t> starts_{0};
};

}  // namespace longstride
