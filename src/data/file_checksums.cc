#include "data/file_checksums.h"

#include <algorithm>
#include <vector>

#include "base/checksum.h"
#include "base/error.h"
#include "data/data_file.h"

namespace longstride {

void check_file(const CheckedFile& listed, const std::atomic<bool>* stop) {
  constexpr std::int64_t kBlock = std::int64_t{1} << 20;
  const DataFile file(listed.path);
  std::vector<std::byte> block(static_cast<std::size_t>(std::min(kBlock, file.size())));
  Checksum checksum;
  for (std::int64_t at = 0; at < file.size(); at += kBlock) {
    if (stop != nullptr && *stop) return;
    const auto here =
        std::span(block).first(static_cast<std::size_t>(std::min(kBlock, file.size() - at)));
    file.read(at, here);
    checksum.add(here);
  }
  const std::string found = fmt::format("{:016x}", checksum.value());
  if (found != listed.xxh3)
    throw Error(fmt::format("{} has been altered: its checksum is {}, and {} says {}",
                            listed.path.string(), found, listed.source, listed.xxh3),
                "put the file back as it was, or prepare the data again");
}

void check_files(const Corpus& corpus) {
  for (const CheckedFile& file : corpus.checked_files()) check_file(file);
}

}  // namespace longstride
