#include "data/joined_corpus.h"

#include <algorithm>

#include "base/error.h"

namespace longstride {

JoinedCorpus::JoinedCorpus(std::vector<std::shared_ptr<const Corpus>> parts)
    : parts_(std::move(parts)) {
  LS_CHECK(!parts_.empty(), "no parts");
  for (const auto& part : parts_) starts_.push_back(starts_.back() + part->tokens());
}

std::size_t JoinedCorpus::part_of(std::int64_t token) const {
  return static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), token) -
                                  starts_.begin()) -
         1;
}

template <class F>
void JoinedCorpus::for_parts(std::int64_t begin, std::int64_t count, const F& f) const {
  LS_CHECK(begin >= 0 && begin + count <= tokens(), "tokens {}+{} of {}", begin, count, tokens());
  std::int64_t done = 0;
  while (done < count) {
    const std::size_t i = part_of(begin + done);
    const std::int64_t n = std::min(count - done, starts_[i + 1] - begin - done);
    f(*parts_[i], begin + done - starts_[i], static_cast<std::size_t>(done),
      static_cast<std::size_t>(n));
    done += n;
  }
}

void JoinedCorpus::read_values(std::int64_t begin, std::span<std::uint32_t> out) const {
  for_parts(begin, static_cast<std::int64_t>(out.size()),
            [&](const Corpus& part, std::int64_t at, std::size_t offset, std::size_t n) {
              part.read_values(at, out.subspan(offset, n));
            });
}

void JoinedCorpus::read_mask(std::int64_t begin, std::span<std::uint8_t> out) const {
  for_parts(begin, static_cast<std::int64_t>(out.size()),
            [&](const Corpus& part, std::int64_t at, std::size_t offset, std::size_t n) {
              part.read_mask(at, out.subspan(offset, n));
            });
}

void JoinedCorpus::read_weights(std::int64_t begin, std::span<float> out) const {
  for_parts(begin, static_cast<std::int64_t>(out.size()),
            [&](const Corpus& part, std::int64_t at, std::size_t offset, std::size_t n) {
              part.read_weights(at, out.subspan(offset, n));
            });
}

std::int64_t JoinedCorpus::document_end(std::int64_t token, std::int64_t limit) const {
  LS_CHECK(token >= 0 && token < limit && limit <= tokens(), "token {}, limit {} of {}", token,
           limit, tokens());
  const std::size_t i = part_of(token);
  const std::int64_t start = starts_[i];
  return start + parts_[i]->document_end(token - start, std::min(limit, starts_[i + 1]) - start);
}

void JoinedCorpus::document_ends(std::int64_t begin, std::int64_t end,
                                 std::span<const std::uint32_t> values,
                                 std::vector<std::int64_t>& ends) const {
  for_parts(begin, end - begin,
            [&](const Corpus& part, std::int64_t at, std::size_t offset, std::size_t n) {
              const std::size_t before = ends.size();
              part.document_ends(at, at + static_cast<std::int64_t>(n),
                                 values.empty() ? values : values.subspan(offset, n), ends);
              const std::int64_t start = begin + static_cast<std::int64_t>(offset) - at;
              for (std::size_t i = before; i < ends.size(); ++i) ends[i] += start;
            });
}

std::vector<TokenRange> JoinedCorpus::token_files() const {
  std::vector<TokenRange> files;
  for (std::size_t i = 0; i < parts_.size(); ++i)
    for (const TokenRange& file : parts_[i]->token_files())
      files.push_back({starts_[i] + file.begin, starts_[i] + file.end, file.width, file.path});
  return files;
}

std::vector<CheckedFile> JoinedCorpus::checked_files() const {
  std::vector<CheckedFile> files;
  for (std::size_t i = 0; i < parts_.size(); ++i)
    for (CheckedFile& file : parts_[i]->checked_files()) {
      file.begin += starts_[i];
      files.push_back(std::move(file));
    }
  return files;
}

bool JoinedCorpus::has_weights() const {
  return std::any_of(parts_.begin(), parts_.end(),
                     [](const auto& part) { return part->has_weights(); });
}

bool JoinedCorpus::has_mask() const {
  return std::any_of(parts_.begin(), parts_.end(),
                     [](const auto& part) { return part->has_mask(); });
}

void JoinedCorpus::check_vocabulary(std::int64_t vocabulary) const {
  for (const auto& part : parts_) part->check_vocabulary(vocabulary);
}

std::string JoinedCorpus::locate(std::int64_t token) const {
  const std::size_t i = part_of(token);
  return parts_[i]->locate(token - starts_[i]);
}

}  // namespace longstride
