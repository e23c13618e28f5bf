#include "plan/placement_cache.h"

#include <chrono>

#include "base/cache_folder.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"

namespace longstride {
namespace fs = std::filesystem;
namespace {

// Counted up when the file or the search changes.
constexpr int kFormat = 1;

OrderedJson to_json(const BestPlacement& best) {
  return {{"bytes", best.placement.bytes},
          {"bound", best.bound},
          {"method", static_cast<int>(best.method)},
          {"offsets", best.placement.offsets}};
}

BestPlacement from_json(const Json& json) {
  BestPlacement best;
  best.placement.bytes = json.at("bytes").get<std::int64_t>();
  best.placement.offsets = json.at("offsets").get<std::vector<std::int64_t>>();
  best.bound = json.at("bound").get<std::int64_t>();
  best.method = static_cast<PlacementMethod>(json.at("method").get<int>());
  best.searched = true;
  return best;
}

// The first line is the checksum of the rest.
std::string sealed(const std::string& text) {
  return fmt::format("{:016x}\n{}", checksum_of_text(text), text);
}

}  // namespace

PlacementCache PlacementCache::of_environment() {
  const std::optional<fs::path> folder = cache_folder();
  return PlacementCache(folder ? *folder / "placements" : fs::path());
}

fs::path PlacementCache::file(const WorkspaceTrace& trace, const PlacementLimits& limits) const {
  std::string content = fmt::format("{} {} {} {} {}\n", kFormat, kPlacementAlignment,
                                    limits.good_enough, limits.pairs, limits.nodes);
  for (const WorkspaceRequest& r : trace)
    content += fmt::format("{} {} {}\n", r.bytes, r.begin, r.end);
  return folder_ / fmt::format("{:016x}", checksum_of_text(content));
}

std::optional<BestPlacement> PlacementCache::find(const WorkspaceTrace& trace,
                                                  const PlacementLimits& limits) const {
  if (folder_.empty()) return {};
  try {
    const fs::path path = file(trace, limits);
    if (!fs::exists(path)) return {};
    const std::string text = read_text(path);
    const std::size_t line = text.find('\n');
    if (line == std::string::npos || text != sealed(text.substr(line + 1))) return {};
    BestPlacement best = from_json(Json::parse(text.substr(line + 1)));
    // Two traces may have the same hash: the checker has the last word.
    if (best.bound < live_bytes_bound(trace) || best.bound > best.placement.bytes ||
        !check_placement(trace, best.placement).empty())
      return {};
    return best;
  } catch (const std::exception&) {
    return {};
  }
}

void PlacementCache::keep(const WorkspaceTrace& trace, const PlacementLimits& limits,
                          const BestPlacement& best) const {
  if (folder_.empty() || !best.searched) return;
  try {
    fs::create_directories(folder_);
    write_file_atomic(file(trace, limits), sealed(dump_json(to_json(best))));
  } catch (const std::exception&) {
    // The next run solves it again.
  }
}

BestPlacement place_best(const WorkspaceTrace& trace, const PlacementCache& cache,
                         const PlacementLimits& limits) {
  const auto start = std::chrono::steady_clock::now();
  std::optional<BestPlacement> found = cache.find(trace, limits);
  if (!found) {
    found = place_best(trace, limits);
    cache.keep(trace, limits, *found);
  }
  found->seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return std::move(*found);
}

}  // namespace longstride
