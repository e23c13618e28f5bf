#include "plan/place_choices.h"

#include <algorithm>
#include <array>
#include <bit>

#include "base/error.h"

namespace longstride {
namespace {

constexpr std::size_t kMostTensors = 8;

PlaceChoice make_choice(const std::vector<PlaceKind>& kinds, std::size_t kind, unsigned device,
                        unsigned host) {
  PlaceChoice choice{.kind = kind, .device = device, .host = host};
  const std::vector<TensorWorth>& tensors = kinds[kind].tensors;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const bool stays = (device >> i & 1) != 0, leaves = (host >> i & 1) != 0;
    if (stays) choice.device_bytes += tensors[i].bytes;
    if (leaves) choice.host_bytes += tensors[i].bytes;
    if (stays || leaves) choice.seconds += tensors[i].seconds;
  }
  return choice;
}

}  // namespace

PlaceChoice best_choice(const std::vector<PlaceKind>& kinds, std::size_t kind,
                        const TierPrices& prices) {
  const std::vector<TensorWorth>& tensors = kinds[kind].tensors;
  const std::int64_t hidden = kinds[kind].hidden;
  LS_CHECK(tensors.size() <= kMostTensors, "{} tensors", tensors.size());
  // Without the host, tensors are independent. Each gains `more` on the host instead.
  std::array<double, kMostTensors> more{};
  unsigned staying = 0, leaving = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto bytes = static_cast<double>(tensors[i].bytes);
    const double stays = tensors[i].seconds - prices.device * bytes;
    if (stays > 0) staying |= 1u << i;
    more[i] = tensors[i].seconds - prices.host * bytes - std::max(0.0, stays);
    if (more[i] > 0 && tensors[i].bytes <= hidden) leaving |= 1u << i;
  }
  // Sums over all sets of tensors, each from a set with one less.
  std::array<double, 1u << kMostTensors> gains;
  std::array<std::int64_t, 1u << kMostTensors> bytes;
  gains[0] = 0;
  bytes[0] = 0;
  unsigned host = 0;
  for (unsigned set = 1; set < 1u << tensors.size(); ++set) {
    const auto first = static_cast<std::size_t>(std::countr_zero(set));
    const unsigned others = set & (set - 1);
    gains[set] = gains[others] + more[first];
    bytes[set] = bytes[others] + tensors[first].bytes;
    if (gains[set] > gains[host] && (set & ~leaving) == 0 && bytes[set] <= hidden) host = set;
  }
  return make_choice(kinds, kind, staying & ~host, host);
}

std::vector<PlaceChoice> list_choices(const std::vector<PlaceKind>& kinds, std::size_t kind) {
  std::vector<PlaceChoice> listed = {make_choice(kinds, kind, 0, 0)};
  const unsigned sets = 1u << kinds[kind].tensors.size();
  for (unsigned host = 0; host < sets; ++host)
    for (unsigned device = 0; device < sets; ++device) {
      if ((host & device) != 0) continue;
      const PlaceChoice choice = make_choice(kinds, kind, device, host);
      if (choice.host_bytes > kinds[kind].hidden) continue;
      const auto dominates = [&](const PlaceChoice& other) { return other.dominates(choice); };
      if (std::any_of(listed.begin(), listed.end(), dominates)) continue;
      std::erase_if(listed, [&](const PlaceChoice& other) { return choice.dominates(other); });
      listed.push_back(choice);
    }
  return listed;
}

}  // namespace longstride
