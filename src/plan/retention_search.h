// Finds the best choice of what places retain, where there are few of them. Place by place, all
// mixes of choices are listed that may still lead to the best; prices of the tiers (from the linear
// program) bound what a mix can lead to.
#pragma once

#include <optional>
#include <vector>

#include "plan/place_choices.h"

namespace longstride {

// Whether there are so few places that a search is worth trying.
bool can_search(const std::vector<PlaceKind>& kinds);

// Looks for what saves most, among all that saves more than `known` seconds: the choice of every
// place, kind by kind, or none if there is no such thing. Nothing if it takes too many steps; they
// are counted, not timed.
std::optional<std::vector<PlaceChoice>> search_retention(const std::vector<PlaceKind>& kinds,
                                                         const RetentionRoom& room,
                                                         const TierPrices& prices, double known);

}  // namespace longstride
