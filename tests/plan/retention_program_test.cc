#include "plan/retention_program.h"

#include <gtest/gtest.h>

#include "tests/plan/retention_cases.h"

namespace longstride {
namespace {

// All tensors of all places, one by one.
struct Written {
  std::vector<CaseTensor> tensors;
  std::vector<std::int64_t> hidden;
};

Written write_out(const std::vector<PlaceKind>& kinds) {
  Written out;
  for (const PlaceKind& kind : kinds)
    for (std::int64_t i = 0; i < kind.places; ++i) {
      for (const TensorWorth& t : kind.tensors)
        out.tensors.push_back({out.hidden.size(), t.bytes, t.seconds});
      out.hidden.push_back(kind.hidden);
    }
  return out;
}

// What the solution saves; checks that it keeps to the capacities.
double saved(const std::vector<PlaceKind>& kinds, const RetentionRoom& room,
             const RetentionSolution& solution) {
  std::int64_t device = 0, host = 0;
  double seconds = 0;
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    std::int64_t places = 0;
    for (const SharedChoice& shared : solution.choices.at(k)) {
      EXPECT_EQ(shared.device & shared.host, 0u);
      places += shared.places;
      std::int64_t leaving = 0;
      for (std::size_t t = 0; t < kinds[k].tensors.size(); ++t) {
        const auto& [bytes, worth] = kinds[k].tensors[t];
        const bool stays = (shared.device >> t & 1) != 0, leaves = (shared.host >> t & 1) != 0;
        if (stays) device += bytes * shared.places;
        if (leaves) leaving += bytes;
        if (stays || leaves) seconds += worth * static_cast<double>(shared.places);
      }
      EXPECT_LE(leaving, kinds[k].hidden);
      host += leaving * shared.places;
    }
    EXPECT_LE(places, kinds[k].places);
  }
  EXPECT_LE(device, room.device);
  EXPECT_LE(host, room.host);
  return seconds;
}

void expect_best(const std::vector<PlaceKind>& kinds, const RetentionRoom& room) {
  const auto solution = solve_retention(kinds, room);
  ASSERT_TRUE(solution);
  Written all = write_out(kinds);
  const double best = best_seconds(all.tensors, all.hidden, room);
  EXPECT_NEAR(saved(kinds, room, *solution), best, 1e-8 * best);
  EXPECT_GE(solution->bound, best * (1 - 1e-12));
  EXPECT_LE(solution->bound, best * (1 + 1e-6)) << "the search has an end";
}

// The device is needed for the place that hides nothing, though the other is worth more per byte.
TEST(RetentionProgram, TheDeviceTakesWhatCannotBeHidden) {
  const std::vector<PlaceKind> kinds = {{.tensors = {{10, 5.0}}, .hidden = 10, .places = 3},
                                        {.tensors = {{10, 4.0}}, .hidden = 9, .places = 3}};
  const RetentionRoom room{30, 30};
  const auto solution = solve_retention(kinds, room);
  ASSERT_TRUE(solution);
  EXPECT_DOUBLE_EQ(saved(kinds, room, *solution), 27);
  const Written all = write_out(kinds);
  EXPECT_DOUBLE_EQ(greedy_seconds(all.tensors, all.hidden, room), 15);
}

TEST(RetentionProgram, HandMadeOnesAreSolved) {
  const std::vector<std::vector<PlaceKind>> cases = {
      {},
      {{.tensors = {}, .hidden = 5, .places = 2}},
      {{.tensors = {{3, 1.0}}, .hidden = 0, .places = 4}},
      // Together what two places hide would take a third tensor; each alone does not.
      {{.tensors = {{10, 1.0}, {10, 1.0}, {10, 1.0}}, .hidden = 15, .places = 2}},
      // The small one first would leave too little for the large one.
      {{.tensors = {{6, 7.0}, {10, 10.0}}, .hidden = 10, .places = 2}},
      // Nothing is worth anything.
      {{.tensors = {{6, 0.0}, {10, 0.0}}, .hidden = 10, .places = 2}},
  };
  for (const auto& kinds : cases)
    for (const RetentionRoom& room :
         {RetentionRoom{0, 0}, {0, 10}, {10, 0}, {10, 10}, {12, 26}, {7, 1000}, {1000, 1000}})
      expect_best(kinds, room);
}

TEST(RetentionProgram, SmallOnesAreSolvedToTheOptimum) {
  std::mt19937 random(7);
  const auto number = [&](std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random);
  };
  for (int i = 0; i < 400; ++i) {
    std::vector<PlaceKind> kinds;
    std::int64_t tensors = 0, bytes = 0;
    while (true) {
      PlaceKind kind{.tensors = {}, .hidden = 0, .places = number(1, 3)};
      std::int64_t size = 0;
      for (std::int64_t t = number(1, 4); t > 0; --t) {
        kind.tensors.push_back({number(1, 40), static_cast<double>(number(1, 60))});
        size += kind.tensors.back().bytes;
      }
      kind.hidden = number(0, size);
      tensors += std::ssize(kind.tensors) * kind.places;
      bytes += size * kind.places;
      if (tensors > 11) break;
      kinds.push_back(std::move(kind));
    }
    SCOPED_TRACE(i);
    expect_best(kinds, {number(0, bytes / 2), number(0, bytes / 2)});
  }
}

// Too many for a search: no more is lost than a few places.
TEST(RetentionProgram, LargeOnesAreNearTheBound) {
  std::mt19937 random(11);
  const auto number = [&](std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random);
  };
  for (int i = 0; i < 30; ++i) {
    std::vector<PlaceKind> kinds(100);
    std::int64_t bytes = 0;
    double most = 0;  // of one place
    for (PlaceKind& kind : kinds) {
      kind.places = number(1, 30);
      double seconds = 0;
      std::int64_t size = 0;
      for (int t = 0; t < 6; ++t) {
        kind.tensors.push_back({number(1, 1000), static_cast<double>(number(1, 1000))});
        size += kind.tensors.back().bytes;
        seconds += kind.tensors.back().seconds;
      }
      kind.hidden = number(0, size);
      bytes += size * kind.places;
      most = std::max(most, seconds);
    }
    const RetentionRoom room{number(0, bytes / 2), number(0, bytes / 2)};
    const auto solution = solve_retention(kinds, room);
    ASSERT_TRUE(solution);
    const double seconds = saved(kinds, room, *solution);
    EXPECT_LE(seconds, solution->bound * (1 + 1e-12));
    EXPECT_GE(seconds, solution->bound - 4 * most);
  }
}

}  // namespace
}  // namespace longstride
