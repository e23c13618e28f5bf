#include "data/text_files.h"

#include <algorithm>
#include <array>
#include <system_error>

#include "base/error.h"
#include "base/log.h"
#include "data/data_file.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with("."); }

// "a, b, c and 4 more".
std::string list(std::vector<fs::path> paths) {
  constexpr std::size_t kNamed = 3;
  std::sort(paths.begin(), paths.end());
  std::string text;
  for (std::size_t i = 0; i < std::min(paths.size(), kNamed); ++i)
    text += (i == 0 ? "" : ", ") + paths[i].string();
  return paths.size() <= kNamed ? text : fmt::format("{} and {} more", text, paths.size() - kNamed);
}

}  // namespace

TextFiles::TextFiles(const std::vector<fs::path>& paths, const RunOutputs& outputs) {
  const OwnOutputs own(outputs);
  std::vector<fs::path> left_out;
  for (const fs::path& path : paths) {
    std::error_code ignored;
    if (own.holds(path))
      throw Error(fmt::format("{} is an output of this run and cannot be its data", path.string()),
                  "name other data, or set checkpoint.directory and metrics.file to other places");
    if (fs::is_directory(path, ignored)) {
      const std::vector<fs::path> found = add_directory(path, own);
      left_out.insert(left_out.end(), found.begin(), found.end());
      continue;
    }
    const std::int64_t size = DataFile(path).size();
    if (size == 0)
      throw Error(fmt::format("{}: the file is empty", path.string()),
                  "name a file with text in it");
    add(path, size);
  }
  LS_CHECK(!files_.empty(), "no paths");
  if (!left_out.empty()) log_info("data: left out, as this run writes there: {}", list(left_out));
}

void TextFiles::add(const fs::path& path, std::int64_t size) {
  files_.push_back(path);
  starts_.push_back(starts_.back() + size);
}

std::vector<fs::path> TextFiles::add_directory(const fs::path& directory,
                                               const OwnOutputs& outputs) {
  std::vector<std::pair<fs::path, std::int64_t>> found;
  std::vector<fs::path> left_out;
  try {
    const fs::path canonical = fs::canonical(directory);
    for (auto entry = fs::recursive_directory_iterator(directory);
         entry != fs::recursive_directory_iterator(); ++entry) {
      // Links to directories are not followed, so only the last part of a path may be a link.
      const bool hidden = is_hidden(entry->path());
      if (!hidden &&
          (entry->is_symlink()
               ? outputs.holds(entry->path())
               : outputs.contains(canonical / entry->path().lexically_relative(directory))))
        left_out.push_back(entry->path());
      else if (!hidden) {
        if (entry->is_regular_file() && entry->file_size() > 0)
          found.emplace_back(entry->path(), static_cast<std::int64_t>(entry->file_size()));
        continue;
      }
      entry.disable_recursion_pending();
    }
  } catch (const fs::filesystem_error& error) {
    throw Error(
        fmt::format("cannot read directory {}: {}", directory.string(), error.code().message()),
        "check the permissions");
  }
  if (found.empty())
    throw Error(fmt::format("{}: the directory holds no text", directory.string()),
                left_out.empty() ? "name a directory with text files in it"
                                 : "what it holds are outputs of this run: name other data");
  // Directory order differs between machines.
  std::sort(found.begin(), found.end());
  for (const auto& [path, size] : found) add(path, size);
  return left_out;
}

std::size_t TextFiles::file_of(std::int64_t token) const {
  return static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), token) -
                                  starts_.begin()) -
         1;
}

void TextFiles::read_values(std::int64_t begin, std::span<std::uint32_t> out) const {
  const auto n = static_cast<std::int64_t>(out.size());
  LS_CHECK(begin >= 0 && begin + n <= tokens(), "bytes {}+{} of {}", begin, n, tokens());
  std::array<std::uint8_t, 16384> block;
  std::int64_t done = 0;
  for (std::size_t i = n == 0 ? files_.size() : file_of(begin); done < n; ++i) {
    const DataFile file(files_[i]);
    if (file.size() != starts_[i + 1] - starts_[i]) throw changed_in_use(files_[i]);
    for (std::int64_t at = begin + done - starts_[i]; at < file.size() && done < n;) {
      const auto bytes = std::span(block).first(
          std::min(block.size(), static_cast<std::size_t>(std::min(file.size() - at, n - done))));
      file.read(at, std::as_writable_bytes(bytes));
      std::copy(bytes.begin(), bytes.end(), out.begin() + done);
      at += std::ssize(bytes);
      done += std::ssize(bytes);
    }
  }
}

std::int64_t TextFiles::document_end(std::int64_t token, std::int64_t limit) const {
  LS_CHECK(token >= 0 && token < limit && limit <= tokens(), "token {}, limit {} of {}", token,
           limit, tokens());
  return std::min(limit, starts_[file_of(token) + 1]);
}

void TextFiles::document_ends(std::int64_t begin, std::int64_t end, std::span<const std::uint32_t>,
                              std::vector<std::int64_t>& ends) const {
  const auto from = std::upper_bound(starts_.begin(), starts_.end(), begin);
  ends.insert(ends.end(), from, std::upper_bound(from, starts_.end(), end));
}

void TextFiles::read_mask(std::int64_t begin, std::span<std::uint8_t> out) const {
  LS_CHECK(begin >= 0 && begin + static_cast<std::int64_t>(out.size()) <= tokens(),
           "mask {}+{} of {}", begin, out.size(), tokens());
  std::fill(out.begin(), out.end(), std::uint8_t{1});
}

void TextFiles::check_vocabulary(std::int64_t vocabulary) const {
  if (vocabulary < 256)
    throw Error(
        fmt::format("text by bytes needs a vocabulary of 256, but the model has {}", vocabulary),
        "choose another model, or give tokens as u32 or u16");
}

std::string TextFiles::locate(std::int64_t token) const {
  const std::size_t i = file_of(token);
  return fmt::format("{}: byte {}", files_[i].string(), token - starts_[i]);
}

}  // namespace longstride
