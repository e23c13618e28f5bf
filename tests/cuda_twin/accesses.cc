// Loads and stores.
#include <cstring>

#include "tests/cuda_twin/handlers.h"
#include "tests/cuda_twin/lanes.h"

namespace longstride::twin {
namespace {

enum class Space : std::uint8_t { kGlobal, kShared, kParameter, kGeneric };

template <Space kSpace>
std::byte* at(Warp& w, std::uint64_t address, std::uint32_t bytes) {
  if constexpr (kSpace == Space::kGlobal) return w.global(address, bytes);
  if constexpr (kSpace == Space::kShared) return w.shared(address, bytes);
  if constexpr (kSpace == Space::kParameter)
    return const_cast<std::byte*>(w.parameter(address, bytes));
  return w.generic(address, bytes);
}

// The same for all lanes of a warp if all addresses are good, without a branch per lane.
template <class T>
bool load_shared(Warp& w, const std::array<std::uint64_t, kLanes>& addresses, std::int64_t offset,
                 T* to) {
  const std::uint64_t last = w.shared_bytes() - sizeof(T);
  std::array<std::uint64_t, kLanes> from;
  std::uint64_t bad = w.shared_bytes() < sizeof(T) ? 1 : 0;
  for (std::size_t l = 0; l < kLanes; ++l) {
    from[l] = (addresses[l] + static_cast<std::uint64_t>(offset)) & (kSharedWindow - 1);
    bad |= (from[l] & (sizeof(T) - 1)) | (from[l] > last ? 1 : 0);
  }
  if (bad != 0) return false;
  const std::byte* const shared = w.shared_data();
  for (std::size_t l = 0; l < kLanes; ++l) std::memcpy(to + l, shared + from[l], sizeof(T));
  return true;
}

template <class T, Space kSpace, int N>
void load(Warp& w, const Instruction& i, std::uint32_t lanes) {
  const auto addresses = read_all<std::uint64_t>(w, i.from[0]);
  bool same_width = true;
  for (std::size_t e = 0; e < N; ++e)
    same_width = same_width && bytes_of(i.to[e].width) == sizeof(T) * kLanes;
  if (same_width) {
    T* to[N];
    for (std::size_t e = 0; e < N; ++e) to[e] = w.lanes<T>(i.to[e]);
    if constexpr (kSpace == Space::kShared && N == 1)
      if (lanes == kAllLanes && load_shared(w, addresses, i.offset, to[0])) return;
    each_lane(lanes, [&](int lane) {
      const std::uint64_t address = addresses[static_cast<std::size_t>(lane)];
      T v[N];
      std::memcpy(v, at<kSpace>(w, address + static_cast<std::uint64_t>(i.offset), sizeof(v)),
                  sizeof(v));
      for (std::size_t e = 0; e < N; ++e) to[e][lane] = v[e];
    });
    return;
  }
  std::array<std::array<std::uint64_t, kLanes>, N> values;
  each_lane(lanes, [&](int lane) {
    const auto l = static_cast<std::size_t>(lane);
    T v[N];
    std::memcpy(v, at<kSpace>(w, addresses[l] + static_cast<std::uint64_t>(i.offset), sizeof(v)),
                sizeof(v));
    // Signed values extend to the register.
    for (std::size_t e = 0; e < N; ++e)
      values[e][l] = static_cast<std::uint64_t>(static_cast<std::int64_t>(v[e]));
  });
  for (std::size_t e = 0; e < N; ++e) write_all(w, i.to[e], lanes, values[e]);
}

template <class T, Space kSpace, int N>
void store(Warp& w, const Instruction& i, std::uint32_t lanes) {
  const auto addresses = read_all<std::uint64_t>(w, i.from[0]);
  std::array<std::array<T, kLanes>, N> values;
  for (std::size_t e = 0; e < N; ++e) values[e] = read_all<T>(w, i.from[e + 1]);
  each_lane(lanes, [&](int lane) {
    const auto l = static_cast<std::size_t>(lane);
    T v[N];
    for (std::size_t e = 0; e < N; ++e) v[e] = values[e][l];
    std::memcpy(at<kSpace>(w, addresses[l] + static_cast<std::uint64_t>(i.offset), sizeof(v)), v,
                sizeof(v));
  });
}

template <class T, Space kSpace>
Handler access(bool stores, int elements) {
  if (elements == 1) return stores ? store<T, kSpace, 1> : load<T, kSpace, 1>;
  if (elements == 2) return stores ? store<T, kSpace, 2> : load<T, kSpace, 2>;
  if (elements == 4) return stores ? store<T, kSpace, 4> : load<T, kSpace, 4>;
  return nullptr;
}

}  // namespace

Handler memory_access_of(const std::vector<std::string>& name, int elements) {
  Space space = Space::kGeneric;
  for (const std::string& part : name) {
    if (part == "global" || part == "const") space = Space::kGlobal;
    if (part.starts_with("shared")) space = Space::kShared;
    if (part.starts_with("param")) space = Space::kParameter;
    if (part == "local") return nullptr;
  }
  const bool stores = name.front() == "st";
  Handler found = nullptr;
  // Bits as they are, whatever they mean.
  std::string type = name.back();
  if (type[0] == 'f') type[0] = 'b';
  with_type(type, [&]<class T>(T*) {
    if constexpr (!std::is_floating_point_v<T>) {
      if (space == Space::kGlobal) found = access<T, Space::kGlobal>(stores, elements);
      if (space == Space::kShared) found = access<T, Space::kShared>(stores, elements);
      if (space == Space::kParameter) found = access<T, Space::kParameter>(stores, elements);
      if (space == Space::kGeneric) found = access<T, Space::kGeneric>(stores, elements);
    }
  });
  return found;
}

}  // namespace longstride::twin
