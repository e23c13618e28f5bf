#include "plan/memory_map.h"

#include <gtest/gtest.h>

#include <chrono>

#include "tests/plan/map_cases.h"

namespace longstride {
namespace {

const MapTenant* tenant_named(const MemoryMap& map, const std::string& name) {
  for (const MapTenant& tenant : map.tenants)
    if (tenant.name == name) return &tenant;
  return nullptr;
}

TEST(MemoryMap, TenantsCoverThePlan) {
  for (const MapCase& c : map_cases()) {
    const MemoryMap map = c.map();
    std::int64_t fixed = 0;
    for (const NamedBytes& tenant : c.input.device) fixed += tenant.bytes;
    EXPECT_EQ(map.used(), fixed + c.plan.memory.total()) << c.name;
    std::int64_t host = 0, disk = 0;
    for (const MapLane& lane : map.host) host += lane.bytes;
    for (const MapLane& lane : map.disk) disk += lane.bytes;
    EXPECT_EQ(host, c.input.host[0].bytes + c.plan.memory.host()) << c.name;
    EXPECT_EQ(disk, c.plan.memory.disk()) << c.name;
  }
}

TEST(MemoryMap, NothingOverlaps) {
  for (const MapCase& c : map_cases()) {
    MemoryMap map = c.map();
    EXPECT_EQ(check_map(map), "") << c.name;
    ASSERT_FALSE(map.close_ups.empty());
    for (const MapCloseUp& close_up : map.close_ups) {
      EXPECT_FALSE(close_up.rects.empty()) << c.name << ": " << close_up.name;
      EXPECT_LE(close_up.live_bytes, close_up.bytes);
      map.tenants = {{"workspace", MapPart::kWorkspace, 0, close_up.bytes, close_up.bytes}};
      map.fills.clear();
      map.rects = close_up.rects;
      map.end = 1;
      EXPECT_EQ(check_map(map), "") << c.name << ": " << close_up.name;
    }
  }
}

// The checker of these tests sees what is wrong.
TEST(MemoryMap, TamperingIsSeen) {
  const MapCase c = map_case({.name = "tampered", .retained = {Retention::all()}});
  const MemoryMap good = c.map();
  ASSERT_EQ(check_map(good), "");
  const auto refused = [&](const auto& damage, const std::string& why) {
    MemoryMap map = good;
    damage(map);
    EXPECT_NE(check_map(map).find(why), std::string::npos) << check_map(map) << " for " << why;
  };
  refused(
      [](MemoryMap& map) {
        MapRect copy = map.rects.back();
        copy.label = "intruder";
        copy.begin = (copy.begin + copy.end) / 2;
        map.rects.push_back(copy);
      },
      "intruder overlaps");
  refused([](MemoryMap& map) { map.rects[0].bytes += 1; }, "outside its tenant");
  refused([](MemoryMap& map) { map.rects.back().end = 2 * map.end; }, "outside the step");
  refused([](MemoryMap& map) { map.fills[0].levels.back().bytes = std::int64_t{1} << 50; },
          "exceeds");
  refused([](MemoryMap& map) { map.tenants[1].address += 1; }, "not above");
}

TEST(MemoryMap, PagesAreSomewhereAtEveryTime) {
  for (const char* name : {"plain", "streamed", "on disk", "windows"})
    for (const MapCase& c : map_cases()) {
      if (c.name != name) continue;
      const MemoryMap map = c.map();
      for (const MapPart part : {MapPart::kKvPages, MapPart::kKvGradients}) {
        std::vector<const std::vector<MapLevel>*> tiers;
        std::int64_t wanted = 0;
        for (const MapFill& fill : map.fills)
          if (fill.part == part) tiers.push_back(&fill.levels);
        for (const auto* lanes : {&map.host, &map.disk})
          for (const MapLane& lane : *lanes)
            if (lane.part == part) tiers.push_back(&lane.levels);
        for (const MapTenant& tenant : map.tenants)
          if (tenant.part == part) wanted = tenant.wanted;
        std::int64_t most = 0;
        for (const auto* levels : tiers)
          for (const MapLevel& level : *levels) {
            std::int64_t sum = 0;
            for (const auto* other : tiers) sum += level_at(*other, level.begin);
            most = std::max(most, sum);
          }
        EXPECT_EQ(most, wanted) << c.name;
        for (const auto* levels : tiers) EXPECT_EQ(levels->back().bytes, 0) << c.name;
      }
    }
}

TEST(MemoryMap, PagesThatDoNotFitAreElsewhere) {
  const MapCase c = map_case({.name = "disk", .tokens = 1500, .stream = true, .host = 1 << 17});
  const MemoryMap map = c.map();
  const MapTenant* kv = tenant_named(map, "KV pages");
  ASSERT_NE(kv, nullptr);
  EXPECT_LT(kv->bytes, kv->wanted);
  ASSERT_FALSE(map.disk.empty());
  for (const MapFill& fill : map.fills) {
    if (fill.part != MapPart::kKvPages) continue;
    EXPECT_EQ(most_of(fill.levels), kv->bytes);
  }
  for (const auto* lanes : {&map.host, &map.disk})
    for (const MapLane& lane : *lanes) EXPECT_LE(most_of(lane.levels), lane.bytes) << lane.name;
}

TEST(MemoryMap, RetainedTensorsWaitForTheirBackwardPass) {
  for (const MapCase& c : map_cases()) {
    const MemoryMap map = c.map();
    const MapTenant* tenant = tenant_named(map, "retained activations");
    EXPECT_EQ(tenant != nullptr, c.plan.memory.retained > 0) << c.name;
    if (tenant == nullptr) continue;
    const auto kept = std::find_if(map.phases.begin(), map.phases.end(), [](const MapPhase& phase) {
      return phase.kind == MapPhaseKind::kKept;
    });
    ASSERT_NE(kept, map.phases.end());
    std::int64_t bytes = 0;
    for (const MapRect& rect : map.rects) {
      if (rect.address < tenant->address || rect.address >= tenant->address + tenant->bytes)
        continue;
      bytes += rect.bytes;
      EXPECT_LT(rect.begin, kept->begin) << c.name << ": " << rect.label;
      EXPECT_GT(rect.end, kept->end) << c.name << ": " << rect.label;
      EXPECT_GE(rect.part, MapPart::kInput);
      EXPECT_LE(rect.part, MapPart::kUp);
    }
    EXPECT_EQ(bytes, c.plan.memory.retained) << c.name;
  }
}

TEST(MemoryMap, TheFirstChunkRetainsLongest) {
  const MapCase c = map_case({.name = "two", .retained = {{Retained::kMid}, {Retained::kMid}}});
  const MemoryMap map = c.map();
  const auto named = [&](const std::string& label) {
    for (const MapRect& rect : map.rects)
      if (rect.label == label) return rect;
    ADD_FAILURE() << "no " << label;
    return MapRect{};
  };
  const MapRect first = named("mid, chunk 0, layer 0"), second = named("mid, chunk 1, layer 0");
  EXPECT_LT(first.begin, second.begin);
  EXPECT_GT(first.end, second.end);
  EXPECT_EQ(first.part, MapPart::kMid);
}

TEST(MemoryMap, TimeIsThatOfTheTasks) {
  const MapCase c = map_case({.name = "timed", .seconds = true});
  const MemoryMap map = c.map();
  double all = 0;
  for (const double seconds : c.input.task_seconds) all += seconds;
  EXPECT_NEAR(map.end, all, 1e-9);
  EXPECT_TRUE(map.in_seconds);
  ASSERT_EQ(map.phases.size(), 3u);
  std::int64_t chunks = 0;
  for (const MapPhase& phase : map.phases) chunks += phase.chunks;
  EXPECT_EQ(chunks, 2 * map.chunks - 1);  // the kept one passes once
  EXPECT_EQ(map.phases.back().end, map.end);

  MapCase wrong = c;
  wrong.input.task_seconds.pop_back();
  EXPECT_THROW(wrong.map(), InternalError);
  wrong = c;
  wrong.input.task_seconds[3] = -1;
  EXPECT_THROW(wrong.map(), InternalError);
}

TEST(MemoryMap, MillionsOfTokensStaySmall) {
  const MapCase c = map_case({.name = "4M",
                              .preset = "qwen2.5-7b",
                              .tokens = 4 << 20,
                              .chunk_tokens = 4096,
                              .page_tokens = 128,
                              .window = 4096,
                              .retained = std::vector<Retention>(900, {Retained::kInput}),
                              .stream = true});
  const auto start = std::chrono::steady_clock::now();
  const MemoryMap map = c.map();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  EXPECT_LT(taken.count(), 1.0);
  EXPECT_EQ(check_map(map), "");
  EXPECT_LT(map.rects.size(), 8000u);
  for (const MapFill& fill : map.fills) EXPECT_LT(fill.levels.size(), 2000u);
}

}  // namespace
}  // namespace longstride
