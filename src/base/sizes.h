// Sizes as people write them: `128K`, `1M`, `118GiB`. K, M, G, T are powers of 1024 for tokens and
// bytes alike (KiB, MiB, GiB, TiB are the same; KB, MB, GB, TB are powers of 1000).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace longstride {

// Throws Error naming `what` if `text` is not a size of at least 0 that fits in 63 bits.
std::int64_t parse_size(std::string_view text, std::string_view what);

// `1.50 GiB`, `12.00 MiB`, `512 B`.
std::string format_bytes(double bytes);

// `64K`, `1M`, `5000`: exact, so that parse_size gives the same number back.
std::string format_count(std::int64_t count);

}  // namespace longstride
