#include "data/foreign_format.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>

namespace longstride {
namespace {

using std::string_view_literals::operator""sv;

struct Foreign {
  std::string name;
  std::string conversion;  // empty: it is read with another data.format
};

struct Ends {
  std::string_view head, tail;  // of the file
  std::int64_t size = 0;
};

// A signature as short as two tokens could be tokens, so such formats need further evidence.
bool is_zip(const Ends& file) {
  return file.head.starts_with("PK\3\4"sv) && file.tail.find("PK\5\6"sv) != std::string_view::npos;
}

bool is_parquet(const Ends& file) {
  return file.head.starts_with("PAR1"sv) && file.tail.ends_with("PAR1"sv);
}

bool is_gzip(const Ends& file) {
  if (file.head.size() < 10 || !file.head.starts_with("\x1f\x8b\x08"sv)) return false;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(file.head[i]); };
  const bool known_speed = byte(8) == 0 || byte(8) == 2 || byte(8) == 4;
  return byte(3) < 32 && known_speed && (byte(9) <= 13 || byte(9) == 255);
}

bool is_safetensors(const Ends& file) {
  if (file.head.size() < 10 || file.head.substr(8, 2) != "{\""sv) return false;
  std::uint64_t length = 0;
  std::memcpy(&length, file.head.data(), sizeof(length));
  return length > 2 && length <= static_cast<std::uint64_t>(file.size - 8);
}

// Valid UTF-8 without control characters, too long to be a coincidence. Raw numbers of two bytes or
// more contain zeros or bytes that are not text.
bool is_text(std::string_view head) {
  constexpr std::size_t kFewest = 256;
  if (head.size() < kFewest) return false;
  for (std::size_t i = 0; i + 4 <= head.size();) {  // the last character may be incomplete
    const auto byte = static_cast<unsigned char>(head[i]);
    const std::size_t more = byte < 0x80   ? 0
                             : byte < 0xc2 ? 9
                             : byte < 0xe0 ? 1
                             : byte < 0xf0 ? 2
                             : byte < 0xf5 ? 3
                                           : 9;
    if (more == 9 || byte == 0x7f || (byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r'))
      return false;
    for (std::size_t k = 1; k <= more; ++k)
      if ((static_cast<unsigned char>(head[i + k]) & 0xc0) != 0x80) return false;
    i += 1 + more;
  }
  return true;
}

std::optional<Foreign> foreign_format(const Ends& file, const std::string& name,
                                      const std::string& numpy_type) {
  const std::string write = fmt::format(".astype(\"{}\").tofile(\"raw.bin\")", numpy_type);
  const auto starts = [&](std::string_view magic) { return file.head.starts_with(magic); };
  if (starts("\x93NUMPY"sv))
    return Foreign{"a NumPy .npy file", fmt::format("numpy.load(\"{}\"){}", name, write)};
  if (is_zip(file))
    return Foreign{"a zip archive, as .npz and .pt files are",
                   fmt::format("numpy.load(\"{}\")[NAME]{} (or torch.load)", name, write)};
  if (is_safetensors(file))
    return Foreign{"a safetensors file",
                   fmt::format("safetensors.numpy.load_file(\"{}\")[NAME]{}", name, write)};
  if (is_parquet(file) || starts("ARROW1\0\0"sv))
    return Foreign{file.head[0] == 'P' ? "a Parquet file" : "an Arrow file",
                   fmt::format("numpy.concatenate(column){}", write)};
  if (starts("\x89HDF\r\n\x1a\n"sv))
    return Foreign{"an HDF5 file", fmt::format("h5py.File(\"{}\")[NAME][:]{}", name, write)};
  if (is_gzip(file)) return Foreign{"compressed by gzip", fmt::format("gunzip \"{}\"", name)};
  if (starts("\x28\xb5\x2f\xfd"sv))
    return Foreign{"compressed by zstd", fmt::format("zstd -d \"{}\"", name)};
  if (starts("MMIDIDX\0\0"sv)) return Foreign{"the index of a Megatron dataset", ""};
  return std::nullopt;
}

}  // namespace

void check_not_foreign(const DataFile& file, const std::string& what,
                       const std::string& numpy_type) {
  const std::string name = file.path().string();
  std::string head(static_cast<std::size_t>(std::min<std::int64_t>(file.size(), 4096)), '\0');
  file.read(0, std::as_writable_bytes(std::span(head)));
  std::string tail(std::min<std::size_t>(head.size(), 22), '\0');  // the end of a zip archive
  file.read(file.size() - std::ssize(tail), std::as_writable_bytes(std::span(tail)));
  if (const auto foreign = foreign_format({head, tail, file.size()}, name, numpy_type))
    throw Error(fmt::format("{} is {}, not {} as raw numbers", name, foreign->name, what),
                foreign->conversion.empty() ? "set data.format to \"megatron\" to read it"
                                            : "convert it by " + foreign->conversion);
  if (is_text(head))
    throw Error(fmt::format("{} is text, not {} as raw numbers", name, what),
                what == "tokens"
                    ? "set data.format to \"text\" to train on its bytes, or write the tokens of "
                      "the model's tokenizer as raw numbers (docs/data.md)"
                    : "write raw numbers (docs/data.md)");
}

}  // namespace longstride
