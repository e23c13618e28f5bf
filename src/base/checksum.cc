#include "base/checksum.h"

#include <xxhash.h>

#include <new>

namespace longstride {

Checksum::Checksum()
    : state_(XXH3_createState(),
             [](void* state) { XXH3_freeState(static_cast<XXH3_state_t*>(state)); }) {
  if (!state_) throw std::bad_alloc();
  XXH3_64bits_reset(static_cast<XXH3_state_t*>(state_.get()));
}

void Checksum::add(std::span<const std::byte> bytes) {
  XXH3_64bits_update(static_cast<XXH3_state_t*>(state_.get()), bytes.data(), bytes.size());
}

std::uint64_t Checksum::value() const {
  return XXH3_64bits_digest(static_cast<const XXH3_state_t*>(state_.get()));
}

}  // namespace longstride
