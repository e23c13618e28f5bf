#include "tests/cuda_twin/memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

namespace longstride::twin {
namespace {

constexpr std::size_t kFilled = std::size_t{16} << 20;  // so many bytes of an allocation are filled
constexpr std::size_t kPage = 4096;

struct Table {
  std::mutex mutex;
  std::map<std::uint64_t, Range> ranges;  // by their ends
  std::map<std::uint64_t, std::size_t> mapped;
  std::size_t device_used = 0;
};
Table& table() {
  static Table* const made = new Table;  // outlives other statics
  return *made;
}

std::uint64_t address_of(const void* p) { return reinterpret_cast<std::uint64_t>(p); }
std::size_t mapped_bytes(std::size_t bytes) { return (bytes / kPage + 2) * kPage; }

void* allocate(std::size_t bytes, Place place) {
  Table& t = table();
  const std::scoped_lock lock(t.mutex);
  if (place == Place::kDevice && t.device_used + bytes > device_bytes()) return nullptr;
  void* const map = mmap(nullptr, mapped_bytes(bytes), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) return nullptr;
  std::memset(map, 0xFF, std::min(bytes, kFilled));
  const std::uint64_t begin = address_of(map);
  t.ranges[begin + bytes] = {begin, begin + bytes, place};
  t.mapped[begin] = bytes;
  if (place == Place::kDevice) t.device_used += bytes;
  return map;
}

bool release(void* data, Place place) {
  Table& t = table();
  const std::scoped_lock lock(t.mutex);
  const auto found = t.mapped.find(address_of(data));
  if (found == t.mapped.end()) return false;
  const auto range = t.ranges.find(found->first + found->second);
  if (range == t.ranges.end() || range->second.place != place) return false;
  if (place == Place::kDevice) t.device_used -= found->second;
  munmap(data, mapped_bytes(found->second));
  t.ranges.erase(range);
  t.mapped.erase(found);
  return true;
}

}  // namespace

void* allocate_device(std::size_t bytes) { return allocate(bytes, Place::kDevice); }
bool free_device(void* data) { return release(data, Place::kDevice); }
void* allocate_pinned(std::size_t bytes) { return allocate(bytes, Place::kPinned); }
bool free_pinned(void* data) { return release(data, Place::kPinned); }

bool pin(void* data, std::size_t bytes) {
  Table& t = table();
  const std::scoped_lock lock(t.mutex);
  const std::uint64_t begin = address_of(data);
  const auto next = t.ranges.upper_bound(begin);
  if (next != t.ranges.end() && next->second.begin < begin + bytes) return false;
  t.ranges[begin + bytes] = {begin, begin + bytes, Place::kPinned};
  return true;
}

bool unpin(void* data) {
  Table& t = table();
  const std::scoped_lock lock(t.mutex);
  const auto found = t.ranges.upper_bound(address_of(data));
  if (found == t.ranges.end() || found->second.begin != address_of(data)) return false;
  t.ranges.erase(found);
  return true;
}

Range range_of(std::uint64_t address) {
  Table& t = table();
  const std::scoped_lock lock(t.mutex);
  const auto found = t.ranges.upper_bound(address);
  return found != t.ranges.end() && found->second.begin <= address ? found->second : Range{};
}

bool lies_in(Place place, const void* data, std::size_t bytes) {
  std::uint64_t at = address_of(data);
  const std::uint64_t end = at + bytes;
  while (at < end) {
    const Range range = range_of(at);
    if (range.place != place) return false;
    at = range.end;
    if (place == Place::kDevice && at < end) return false;
  }
  return true;
}

std::size_t device_bytes() {
  const char* const text = std::getenv("LONGSTRIDE_TWIN_MEMORY");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : std::size_t{16} << 30;
}

std::size_t device_bytes_free() {
  Table& t = table();
  const std::scoped_lock lock(t.mutex);
  return device_bytes() - t.device_used;
}

}  // namespace longstride::twin
