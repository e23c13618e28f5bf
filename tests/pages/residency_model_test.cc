// Residency against a brute-force model that stores and searches everything.
#include <gtest/gtest.h>

#include <set>

#include "base/random.h"
#include "pages/residency.h"

namespace longstride {
namespace {

// An access, with everything that the model needs.
struct NaiveAccess {
  std::int64_t layer = 0;
  PageSet pages;
  bool late = false;
  std::set<std::int64_t> groups;
};

class NaiveResidency {
 public:
  NaiveResidency(std::int64_t groups, std::int64_t per) : groups_(groups), per_(per) {}

  std::vector<NaiveAccess> accesses;
  std::set<std::int64_t> here;  // layer * groups + group
  std::int64_t begun = 0;
  std::multiset<std::int64_t> pinned;

  void set_pages(NaiveAccess& access, const PageSet& pages) const {
    access.pages = pages;
    for (std::int64_t page = 0; page < groups_ * per_; ++page)
      if (pages.contains(page)) access.groups.insert(access.layer * groups_ + page / per_);
  }
  std::int64_t next(std::int64_t group) const {
    for (std::int64_t i = begun; i < std::ssize(accesses); ++i)
      if (accesses[static_cast<std::size_t>(i)].groups.contains(group)) return i;
    return Residency::kNever;
  }
  std::optional<PageGroup> victim(std::int64_t than) const {
    std::pair<std::int64_t, std::int64_t> best{than, groups_ * 1000};
    bool found = false;
    for (const std::int64_t group : here) {
      if (pinned.contains(group) || next(group) <= than) continue;
      best = found ? std::max(best, {next(group), group}) : std::pair(next(group), group);
      found = true;
    }
    if (!found) return std::nullopt;
    return PageGroup{best.second / groups_, best.second % groups_};
  }

 private:
  std::int64_t groups_, per_;
};

constexpr std::int64_t kLayers = 3, kPages = 23;

PageSet random_pages(Random& random) {
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(n)));
  };
  if (below(3) != 0) {
    const std::int64_t begin = below(kPages);
    return PageRun{begin, begin + 1 + below(kPages - begin)};
  }
  std::vector<PageRun> runs;
  for (std::int64_t page = below(6); page < kPages; page += 1 + below(5)) {
    const std::int64_t end = std::min(kPages, page + 1 + below(3));
    runs.push_back({page, end});
    page = end;
  }
  return PageSet(runs);
}

// Runs, sweeps over equal runs (one entry of the list), sets and late accesses.
void add_random(Random& random, const NaiveResidency& model, AccessList& list,
                std::vector<NaiveAccess>& accesses) {
  const auto add = [&](const NaiveAccess& access, const PageSet& pages) {
    list.add({.layer = access.layer,
              .pages = access.late ? PageSet() : pages,
              .changes = random.below(4) == 0,
              .late = access.late});
    accesses.push_back(access);
    if (!access.late) model.set_pages(accesses.back(), pages);
  };
  NaiveAccess access{.layer = static_cast<std::int64_t>(random.below(kLayers))};
  if (random.below(3) == 0) {
    const auto length = 1 + static_cast<std::int64_t>(random.below(5));
    for (std::int64_t page = static_cast<std::int64_t>(random.below(4)); page < kPages;
         page += length)
      add(access, PageRun{page, std::min(kPages, page + length)});
    return;
  }
  access.late = random.below(4) == 0;
  add(access, random.below(10) == 0 ? PageSet() : random_pages(random));
}

void expect_same(Residency& residency, const NaiveResidency& model, std::int64_t groups,
                 std::int64_t than) {
  ASSERT_EQ(residency.victim(than), model.victim(than));
  for (std::int64_t i = 0; i < kLayers * groups; ++i)
    ASSERT_EQ(residency.next_access({i / groups, i % groups}), model.next(i)) << "group " << i;
}

void walk(std::uint64_t seed, std::int64_t per) {
  const std::int64_t groups = (kPages + per - 1) / per;
  Random random(seed, static_cast<std::uint64_t>(per));
  NaiveResidency model(groups, per);
  Residency residency(kLayers, kPages, per);
  AccessList list(kLayers);
  while (list.size() < 150) add_random(random, model, list, model.accesses);
  residency.begin(std::move(list));
  std::vector<std::int64_t> under_way;
  for (std::int64_t number = 0; number < std::ssize(model.accesses); ++number) {
    const auto resolve = [&](std::int64_t which) {
      NaiveAccess& access = model.accesses[static_cast<std::size_t>(which)];
      if (!access.late) return;
      const PageSet pages = random.below(8) == 0 ? PageSet() : random_pages(random);
      access.late = false;
      model.set_pages(access, pages);
      residency.resolve(which, pages);
    };
    // Some are resolved long before they begin, in any order.
    resolve(std::min(number + static_cast<std::int64_t>(random.below(20)),
                     std::ssize(model.accesses) - 1));
    resolve(number);
    expect_same(residency, model, groups, number);
    const NaiveAccess& access = model.accesses[static_cast<std::size_t>(number)];
    EXPECT_EQ(residency.accesses().at(number).pages, access.pages);
    for (const std::int64_t group : access.groups)
      if (model.here.insert(group).second) residency.arrive({group / groups, group % groups});
    residency.pin(number);
    model.begun = number + 1;
    model.pinned.insert(access.groups.begin(), access.groups.end());
    under_way.push_back(number);
    while (!under_way.empty() && (random.below(2) == 0 || under_way.size() > 2)) {
      const std::int64_t ended = under_way.front();
      under_way.erase(under_way.begin());
      residency.unpin(ended);
      for (const std::int64_t group : model.accesses[static_cast<std::size_t>(ended)].groups)
        model.pinned.erase(model.pinned.find(group));
    }
    for (const std::int64_t than : {number, number + 3, std::int64_t{-1}}) {
      expect_same(residency, model, groups, than);
      const std::optional<PageGroup> victim = residency.victim(than);
      if (!victim || random.below(2) == 0) continue;
      residency.leave(*victim);
      model.here.erase(victim->layer * groups + victim->index);
    }
  }
}

TEST(ResidencyModel, TheSameVictimsAndPins) {
  for (const std::int64_t per : {1, 2, 3, 5, 30})
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      walk(seed, per);
      if (HasFatalFailure()) FAIL() << "seed " << seed << ", groups of " << per;
    }
}

}  // namespace
}  // namespace longstride
