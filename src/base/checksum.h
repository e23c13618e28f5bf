// Checksum: XXH3-64 of bytes that come piece by piece. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace longstride {

class Checksum {
 public:
  Checksum();
  void add(std::span<const std::byte> bytes);
  std::uint64_t value() const;  // of all bytes so far

 private:
  std::unique_ptr<void, void (*)(void*)> state_;
};

}  // namespace longstride
