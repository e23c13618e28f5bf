#include "plan/retention_search.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>

namespace longstride {
namespace {

constexpr std::int64_t kMostPlaces = 32;
constexpr std::int64_t kMostSteps = 200'000;
constexpr double kPrecision = 1e-10;  // of seconds, relative

// A choice for each of the first places.
struct Mix {
  std::int64_t device = 0, host = 0;
  double seconds = 0;
  double lost = 0;  // seconds below the bound, because choices are not the best at these prices
  std::size_t before = 0;  // the mix of one place less
  const PlaceChoice* last = nullptr;
};

// Those that no other one beats in bytes and seconds.
std::vector<Mix> undominated(std::vector<Mix> mixes) {
  std::sort(mixes.begin(), mixes.end(), [](const Mix& a, const Mix& b) {
    return std::tie(a.device, a.host, b.seconds) < std::tie(b.device, b.host, a.seconds);
  });
  std::vector<Mix> kept;
  std::map<std::int64_t, double> most;  // seconds by host bytes, of mixes with fewer device bytes
  for (const Mix& mix : mixes) {
    auto after = most.upper_bound(mix.host);
    if (after != most.begin() && std::prev(after)->second >= mix.seconds) continue;
    while (after != most.end() && after->second <= mix.seconds) after = most.erase(after);
    most[mix.host] = mix.seconds;
    kept.push_back(mix);
  }
  return kept;
}

}  // namespace

bool can_search(const std::vector<PlaceKind>& kinds) {
  std::int64_t places = 0;
  for (const PlaceKind& kind : kinds) places += kind.places;
  return places <= kMostPlaces;
}

std::optional<std::vector<PlaceChoice>> search_retention(const std::vector<PlaceKind>& kinds,
                                                         const RetentionRoom& room,
                                                         const TierPrices& prices, double known) {
  // Whatever the prices: a choice saves what the room costs and places gain, less what their
  // choices lose of that and what the room that is left would cost.
  std::vector<double> gains;
  double bound = prices.device * static_cast<double>(room.device) +
                 prices.host * static_cast<double>(room.host);
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    gains.push_back(prices.gain(best_choice(kinds, kind, prices)));
    bound += gains.back() * static_cast<double>(kinds[kind].places);
  }
  const double may_lose = bound - known - kPrecision * bound;

  std::vector<std::vector<PlaceChoice>> choices(kinds.size());
  std::vector<std::vector<Mix>> mixes = {{Mix{}}};  // by number of places
  std::int64_t steps = 0;
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    choices[kind] = list_choices(kinds, kind);
    const auto loss = [&](const PlaceChoice& choice) { return gains[kind] - prices.gain(choice); };
    std::erase_if(choices[kind], [&](const PlaceChoice& c) { return loss(c) > may_lose; });
    for (std::int64_t place = 0; place < kinds[kind].places; ++place) {
      std::vector<Mix> next;
      for (std::size_t m = 0; m < mixes.back().size(); ++m) {
        const Mix& mix = mixes.back()[m];
        steps += std::ssize(choices[kind]);
        if (steps > kMostSteps) return {};
        for (const PlaceChoice& choice : choices[kind]) {
          const Mix longer{mix.device + choice.device_bytes,
                           mix.host + choice.host_bytes,
                           mix.seconds + choice.seconds,
                           mix.lost + loss(choice),
                           m,
                           &choice};
          if (longer.device <= room.device && longer.host <= room.host && longer.lost <= may_lose)
            next.push_back(longer);
        }
      }
      mixes.push_back(undominated(std::move(next)));
    }
  }

  std::vector<PlaceChoice> result;
  const auto best =
      std::max_element(mixes.back().begin(), mixes.back().end(),
                       [](const Mix& a, const Mix& b) { return a.seconds < b.seconds; });
  if (best == mixes.back().end() || best->seconds <= known) return result;
  const Mix* mix = &*best;
  for (std::size_t places = mixes.size() - 1; places > 0; --places) {
    result.push_back(*mix->last);
    mix = &mixes[places - 1][mix->before];
  }
  std::reverse(result.begin(), result.end());
  return result;
}

}  // namespace longstride
