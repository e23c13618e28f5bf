// Activations that leave the device and come back, in the memory map.
#include <gtest/gtest.h>

#include "tests/plan/map_cases.h"

namespace longstride {
namespace {

std::vector<MapCase> swapped_cases() {
  std::vector<MapCase> cases;
  for (MapCase& c : map_cases())
    if (!c.plan.saved().empty()) cases.push_back(std::move(c));
  return cases;
}

bool of_activations(const MapLane& lane) { return lane.part >= MapPart::kInput; }

// Of all tiers.
std::int64_t away_at(const MemoryMap& map, double time) {
  std::int64_t bytes = 0;
  for (const auto* lanes : {&map.host, &map.disk})
    for (const MapLane& lane : *lanes)
      if (of_activations(lane)) bytes += level_at(lane.levels, time);
  return bytes;
}

MapPhaseKind phase_at(const MemoryMap& map, double time) {
  for (const MapPhase& phase : map.phases)
    if (time < phase.end) return phase.kind;
  return MapPhaseKind::kBackward;
}

const MapLane& moving(const MemoryMap& map, MapPart part) {
  for (const MapLane& lane : map.moving)
    if (lane.part == part) return lane;
  throw InternalError("nothing moves");
}

TEST(MemoryMapSwapped, AreAwayBetweenTheirPasses) {
  const std::vector<MapCase> cases = swapped_cases();
  ASSERT_EQ(cases.size(), 4u);
  for (const MapCase& c : cases) {
    const MemoryMap map = c.map();
    const ActivationSizes sizes(c.input.config, c.input.compute);
    std::int64_t all = 0;
    for (const Retention saved : c.plan.saved())
      all += activation_bytes(sizes, c.plan.longest_chunk(), saved);
    ASSERT_EQ(map.phases.size(), 3u);
    EXPECT_EQ(away_at(map, map.phases[1].begin), all) << c.name;
    EXPECT_EQ(away_at(map, (map.phases[1].begin + map.phases[1].end) / 2), all) << c.name;
    for (const auto* lanes : {&map.host, &map.disk})
      for (const MapLane& lane : *lanes) {
        if (!of_activations(lane)) continue;
        EXPECT_EQ(lane.levels.front().bytes, 0) << c.name << ": " << lane.name;
        EXPECT_EQ(lane.levels.back().bytes, 0) << c.name << ": " << lane.name;
        EXPECT_EQ(most_of(lane.levels), lane.bytes) << c.name << ": " << lane.name;
        for (std::size_t i = 1; i < lane.levels.size(); ++i)
          EXPECT_EQ(lane.levels[i].bytes < lane.levels[i - 1].bytes,
                    phase_at(map, lane.levels[i].begin) == MapPhaseKind::kBackward)
              << c.name << ": " << lane.name;
      }
  }
}

TEST(MemoryMapSwapped, FillHostMemoryBeforeTheDisk) {
  for (const MapCase& c : swapped_cases()) {
    const MemoryMap map = c.map();
    const auto on = [](const std::vector<MapLane>& lanes) {
      return std::any_of(lanes.begin(), lanes.end(), of_activations);
    };
    EXPECT_TRUE(on(map.host)) << c.name;
    EXPECT_EQ(on(map.disk), c.plan.memory.disk_activations > 0) << c.name;
    EXPECT_EQ(on(map.disk), c.name == "swapped to disk");
    std::int64_t buffers = 0;
    for (const MapLane& lane : map.host)
      if (lane.name == "disk buffers of activations") buffers += lane.bytes;
    EXPECT_EQ(buffers > 0, on(map.disk)) << c.name;
  }
}

// They leave in forward passes and land in backward passes; both take workspace.
TEST(MemoryMapSwapped, MoveThroughTheWorkspace) {
  for (const MapCase& c : swapped_cases()) {
    const MemoryMap map = c.map();
    const MapLane &leaving = moving(map, MapPart::kLeaving),
                  &landing = moving(map, MapPart::kLanding);
    for (const auto& [lane, kind] : {std::pair{&leaving, MapPhaseKind::kForward},
                                     std::pair{&landing, MapPhaseKind::kBackward}}) {
      EXPECT_EQ(most_of(lane->levels), lane->bytes) << c.name << ": " << lane->name;
      EXPECT_GT(lane->bytes, 0) << c.name << ": " << lane->name;
      for (const MapLevel& level : lane->levels)
        EXPECT_TRUE(level.bytes == 0 || phase_at(map, level.begin) == kind) << c.name;
    }
    EXPECT_EQ(leaving.levels.back().bytes, 0) << c.name;
    EXPECT_EQ(landing.levels.back().bytes, 0) << c.name;

    // The traces say how much of the workspace they take.
    std::int64_t most = 0;
    for (const auto& [shape, placed] : c.plan.episodes) {
      std::map<std::int64_t, std::int64_t> changes;
      for (const WorkspaceRequest& request : placed.trace) {
        if (!request.name.starts_with("fetched ")) continue;
        changes[request.begin] += request.bytes;
        changes[request.end] -= request.bytes;
      }
      std::int64_t now = 0;
      for (const auto& [event, change] : changes) most = std::max(most, now += change);
    }
    EXPECT_EQ(landing.bytes, most) << c.name;
  }
}

TEST(MemoryMapSwapped, FetchedTensorsAreMarked) {
  for (const MapCase& c : map_cases()) {
    const MemoryMap map = c.map();
    bool any = false;
    for (const MapCloseUp& close_up : map.close_ups)
      for (const MapRect& rect : close_up.rects) {
        if (!rect.fetched) continue;
        any = true;
        EXPECT_TRUE(rect.label.starts_with("fetched ")) << c.name << ": " << rect.label;
        EXPECT_GE(rect.part, MapPart::kInput);
        EXPECT_LE(rect.part, MapPart::kUp);
      }
    // The close-up is of the middle chunk, whose activations are swapped in these.
    EXPECT_EQ(any,
              c.name == "swapped" || c.name == "swapped to disk" || c.name == "swapped, sparse")
        << c.name;
    EXPECT_EQ(map.moving.empty(), c.plan.saved().empty()) << c.name;
  }
}

TEST(MemoryMapSwapped, MillionsOfTokensStaySmall) {
  const MapCase c = map_case({.name = "4M",
                              .preset = "qwen2.5-7b",
                              .tokens = 4 << 20,
                              .chunk_tokens = 16384,
                              .page_tokens = 128,
                              .window = 4096,
                              .swapped = std::vector<Retention>(250, {Retained::kInput})});
  const MemoryMap map = c.map();
  EXPECT_EQ(check_map(map), "");
  for (const auto* lanes : {&map.moving, &map.host})
    for (const MapLane& lane : *lanes) EXPECT_LE(lane.levels.size(), 1200u) << lane.name;
}

}  // namespace
}  // namespace longstride
