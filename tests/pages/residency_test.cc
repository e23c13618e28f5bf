#include "pages/residency.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace longstride {
namespace {

struct GroupRun {
  std::int64_t layer, first, last;
};

// Groups of one page.
AccessList list_of(std::int64_t layers, const std::vector<GroupRun>& runs) {
  AccessList list(layers);
  for (const GroupRun& run : runs)
    list.add({.layer = run.layer, .pages = PageRun{run.first, run.last + 1}});
  return list;
}

// Two layers, three groups: forward group by group, then backward; everything is accessed.
AccessList dense_accesses() {
  std::vector<GroupRun> runs;
  for (const std::int64_t group : {0, 1, 2})
    for (const std::int64_t layer : {0, 1}) runs.push_back({layer, 0, group});
  for (const std::int64_t group : {2, 1, 0})
    for (const std::int64_t layer : {1, 0}) runs.push_back({layer, 0, group});
  return list_of(2, runs);
}

TEST(Residency, WhatIsNeededLastLeavesFirst) {
  Residency r(2, 3, 1);
  r.begin(dense_accesses());
  EXPECT_EQ(r.next_access({1, 0}), 1);
  EXPECT_EQ(r.next_access({0, 2}), 4);
  for (std::int64_t number : {0, 1}) {
    r.arrive({number, 0});
    r.pin(number);
    r.unpin(number);
  }
  r.arrive({0, 1});
  r.pin(2);  // layer 0 of group 1 is in use, and accessed again at 4; layer 1 at 3
  EXPECT_EQ(r.victim(2), (PageGroup{1, 0})) << "what is computed on stays";
  EXPECT_FALSE(r.victim(3).has_value()) << "nor does it leave for something needed later";
  r.unpin(2);
  EXPECT_EQ(r.victim(3)->layer, 0);
}

TEST(Residency, AGroupThatIsNeverAccessedAgainGoesBeforeAll) {
  Residency r(2, 1, 1);
  r.begin(list_of(2, {{0, 0, 0}, {1, 0, 0}, {0, 0, 0}}));
  r.arrive({0, 0});
  r.arrive({1, 0});
  for (std::int64_t number : {0, 1}) {
    r.pin(number);
    r.unpin(number);
  }
  EXPECT_EQ(r.next_access({1, 0}), Residency::kNever);
  EXPECT_EQ(r.victim(2), (PageGroup{1, 0}));
}

// With a window, the first groups are not accessed again until the backward pass.
TEST(Residency, GroupsBehindTheWindowGoBeforeThoseInIt) {
  Residency r(2, 4, 1);
  // Layer 0 sees two groups at a time, layer 1 all; then backward.
  r.begin(list_of(2, {{0, 0, 0},
                      {1, 0, 0},
                      {0, 0, 1},
                      {1, 0, 1},
                      {0, 1, 2},
                      {1, 0, 2},
                      {0, 1, 2},
                      {1, 0, 2},
                      {0, 0, 1},
                      {1, 0, 1}}));
  for (const std::int64_t group : {0, 1, 2})
    for (const std::int64_t layer : {0, 1}) r.arrive({layer, group});
  for (std::int64_t number = 0; number < 5; ++number) {
    r.pin(number);
    r.unpin(number);
  }
  EXPECT_EQ(r.victim(5), (PageGroup{0, 0}));
  r.leave({0, 0});
  EXPECT_EQ(r.victim(5)->layer, 0);
}

TEST(Residency, ABrokenOrderIsNoticed) {
  Residency r(1, 2, 1);
  const AccessList accesses = list_of(1, {{0, 0, 0}, {0, 0, 1}});
  r.begin(accesses);
  EXPECT_THROW(r.pin(1), InternalError);
  EXPECT_THROW(r.unpin(0), InternalError);
  r.arrive({0, 0});
  EXPECT_THROW(r.arrive({0, 0}), InternalError);
  EXPECT_THROW(r.leave({0, 1}), InternalError);
  EXPECT_THROW(r.begin(accesses), InternalError);
  r.leave({0, 0});
  EXPECT_NO_THROW(r.begin(accesses));
}

TEST(Residency, ALateAccessCountsOnceItsPagesAreKnown) {
  Residency r(1, 4, 1);
  AccessList list = list_of(1, {{0, 0, 3}});
  list.add({.layer = 0, .late = true});
  list.add({.layer = 0, .pages = PageRun{0, 4}});
  list.add({.layer = 0, .late = true});
  r.begin(std::move(list));
  for (const std::int64_t group : {0, 1, 2, 3}) r.arrive({0, group});
  r.pin(0);
  r.unpin(0);
  EXPECT_EQ(r.next_access({0, 1}), 2);
  EXPECT_THROW(r.pin(1), InternalError) << "without its pages";
  r.resolve(3, PageRun{2, 3});
  EXPECT_EQ(r.next_access({0, 2}), 2) << "it is accessed before";
  r.resolve(1, PageSet(std::vector<PageRun>{{1, 2}, {3, 4}}));
  EXPECT_THROW(r.resolve(1, PageRun{0, 1}), InternalError) << "twice";
  EXPECT_EQ(r.next_access({0, 0}), 2);
  EXPECT_EQ(r.next_access({0, 1}), 1);
  EXPECT_EQ(r.next_access({0, 3}), 1);
  EXPECT_EQ(r.victim(0), (PageGroup{0, 2}));
  r.pin(1);
  EXPECT_EQ(r.next_access({0, 3}), 2);
  r.unpin(1);
  r.pin(2);
  r.unpin(2);
  EXPECT_EQ(r.next_access({0, 2}), 3);
  EXPECT_EQ(r.next_access({0, 3}), Residency::kNever);
}

// Chunk a creates page 0, chunk b page 1, then each attends to late pages: the new pages are not
// evicted before their own chunk's access is known, although nothing is known to want them.
TEST(Residency, NewPagesStayUntilTheirLateAccessIsKnown) {
  Residency r(1, 4, 1);
  AccessList list(1);
  list.add({.layer = 0, .pages = PageRun{2, 4}});
  for (const std::int64_t page : {0, 1})
    list.add({.layer = 0,
              .pages = PageRun{page, page + 1},
              .creates = true,
              .all_new = true,
              .changes = true});
  list.add({.layer = 0, .late = true});
  list.add({.layer = 0, .late = true});
  list.add({.layer = 0, .pages = PageRun{2, 4}});
  r.begin(std::move(list));
  for (const std::int64_t group : {2, 3}) r.arrive({0, group});
  r.pin(0);
  r.unpin(0);
  for (const std::int64_t number : {1, 2}) {
    r.arrive({0, number - 1});
    r.pin(number);
    r.unpin(number);
  }
  EXPECT_EQ(r.next_access({0, 1}), Residency::kNever);
  r.resolve(3, PageRun{0, 1});
  EXPECT_EQ(r.victim(4), (PageGroup{0, 3})) << "the pages of access 5";
  r.leave({0, 3});
  r.leave({0, 2});
  EXPECT_EQ(r.victim(4), std::nullopt) << "not for an access that is only prefetched";
  EXPECT_EQ(r.victim(3), (PageGroup{0, 1})) << "but for the one that begins";
  r.resolve(4, PageRun{1, 2});
  EXPECT_EQ(r.next_access({0, 1}), 4);
  r.pin(3);
  r.unpin(3);
  EXPECT_EQ(r.victim(4), (PageGroup{0, 0})) << "its access has ended";
}

}  // namespace
}  // namespace longstride
