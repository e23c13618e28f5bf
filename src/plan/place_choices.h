// What one place, a (chunk, layer), may retain on which tier.
#pragma once

#include <cstddef>
#include <vector>

#include "plan/retention_program.h"

namespace longstride {

struct PlaceChoice {
  std::size_t kind = 0;           // of the place
  unsigned device = 0, host = 0;  // bit i: tensor i of the kind
  std::int64_t device_bytes = 0, host_bytes = 0;
  double seconds = 0;  // saved

  bool dominates(const PlaceChoice& o) const {
    return device_bytes <= o.device_bytes && host_bytes <= o.host_bytes && seconds >= o.seconds;
  }
};

// Seconds for a byte of each tier.
struct TierPrices {
  double device = 0, host = 0;
  // What the choice saves beyond what its bytes cost.
  double gain(const PlaceChoice& choice) const {
    return choice.seconds - device * static_cast<double>(choice.device_bytes) -
           host * static_cast<double>(choice.host_bytes);
  }
};

// The choice that gains most. On a tie between tiers it is the device.
PlaceChoice best_choice(const std::vector<PlaceKind>& kinds, std::size_t kind,
                        const TierPrices& prices);

// All that no other one dominates; the first retains nothing.
std::vector<PlaceChoice> list_choices(const std::vector<PlaceKind>& kinds, std::size_t kind);

}  // namespace longstride
