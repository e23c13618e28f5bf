// Pages that come and go between tiers keep their content, whatever the order.
#include "pages/tiered_pages.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "base/error.h"
#include "base/random.h"
#include "tests/data/temp_directory.h"

namespace longstride {
namespace {

constexpr std::int64_t kLayers = 3, kChunks = 4, kPer = 2, kPages = kChunks * kPer - 1, kBytes = 64;

// Layer after layer, chunk after chunk; a random half of the tasks writes to what it uses.
void walk(std::int64_t capacity, const AwayRoom& away, std::uint64_t seed, bool zeroed,
          AwayBlocks::Moved* moved = nullptr) {
  const std::unique_ptr<Device> device = make_cpu_device();
  TieredPages pages(*device, {kLayers, kPages, kPer, kBytes, capacity, away}, "pages");
  std::vector<std::vector<BlockUse>> uses(kLayers);
  for (std::int64_t position = 0; position < 200; ++position)
    uses[static_cast<std::size_t>(position % kLayers)].push_back({position, 0, kChunks - 1});
  pages.begin(uses);
  std::map<std::pair<std::int64_t, std::int64_t>, unsigned char> content;
  Random random(seed);
  for (std::int64_t position = 0; position < 200; ++position) {
    const std::int64_t layer = position % kLayers;
    const auto end = static_cast<std::int64_t>(1 + random.below(kPages));
    const bool changes = random.below(2) == 0;
    pages.enter({.position = position,
                 .layer = layer,
                 .used = {0, end},
                 .created = {0, end},
                 .existing_may_be_created = true,
                 .zeroed = zeroed,
                 .changes = changes});
    EXPECT_LE(pages.pool().in_use(), capacity);
    for (std::int64_t page = 0; page < end; ++page) {
      const std::int32_t slot = pages.table(layer)[page];
      ASSERT_GE(slot, 0) << "layer " << layer << " page " << page;
      auto* at = reinterpret_cast<unsigned char*>(pages.pool().page(slot));
      const auto known = content.find({layer, page});
      const bool fresh = known == content.end();
      if (!fresh || zeroed) {
        const unsigned char expected = fresh ? 0 : known->second;
        ASSERT_TRUE(std::all_of(at, at + kBytes, [&](unsigned char b) { return b == expected; }))
            << "position " << position << " layer " << layer << " page " << page;
      }
      if (!changes && !fresh) continue;
      const auto value = static_cast<unsigned char>(random.below(256));
      std::memset(at, value, kBytes);
      content[{layer, page}] = value;
    }
    if (random.below(8) == 0) {  // a chunk ends
      const auto chunk = static_cast<std::int64_t>(random.below(kChunks));
      pages.release(layer, {chunk * kPer, std::min((chunk + 1) * kPer, kPages)});
      for (std::int64_t page = chunk * kPer; page < (chunk + 1) * kPer; ++page)
        content.erase({layer, page});
    }
  }
  if (moved != nullptr) *moved = pages.moved();
  pages.release_all();
  EXPECT_EQ(pages.pool().in_use(), 0);
}

TEST(TieredPages, ContentSurvivesEveryWay) {
  const TempDirectory directory;
  const std::int64_t all = kLayers * kPages, blocks = kLayers * kChunks;
  for (std::uint64_t seed = 0; seed < 10; ++seed)
    for (const bool zeroed : {true, false}) {
      AwayBlocks::Moved resident, host, disk, mixed;
      walk(all, {}, seed, zeroed, &resident);
      EXPECT_EQ(resident.out + resident.in, 0);
      for (const std::int64_t capacity : {kPages, kPages + 3, all - 1}) {
        walk(capacity, {blocks, 0}, seed, zeroed, &host);
        walk(capacity, {0, blocks, directory.path()}, seed, zeroed, &disk);
        walk(capacity, {3, blocks - 3, directory.path()}, seed, zeroed, &mixed);
        EXPECT_EQ(host.to_disk, 0);
        EXPECT_EQ(disk.to_disk, disk.out);
        EXPECT_EQ(disk.from_disk, disk.in);
        // Where pages wait does not change what moves.
        EXPECT_EQ(host.out, disk.out);
        EXPECT_EQ(host.in, mixed.in);
        if (capacity == kPages) {
          EXPECT_GT(host.in, 0);
        }
      }
    }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path())) << "the file has no name";
}

TEST(TieredPages, ACleanBlockIsNotWrittenAgain) {
  const std::unique_ptr<Device> device = make_cpu_device();
  TieredPages pages(*device, {2, 1, 1, kBytes, 1, {2, 0}}, "pages");
  pages.begin({{{0, 0, 0}, {2, 0, 0}, {4, 0, 0}}, {{1, 0, 0}, {3, 0, 0}, {5, 0, 0}}});
  const auto enter = [&](std::int64_t position, bool creates, bool changes) {
    pages.enter({.position = position,
                 .layer = position % 2,
                 .used = {0, 1},
                 .created = {0, creates ? 1 : 0},
                 .changes = changes});
  };
  enter(0, true, true);
  enter(1, true, true);
  EXPECT_EQ(pages.moved().out, kBytes);  // layer 0, for the first time
  enter(2, false, false);
  EXPECT_EQ(pages.moved().out, 2 * kBytes);  // layer 1, for the first time
  enter(3, false, true);                     // layer 0 leaves as it came
  EXPECT_EQ(pages.moved().out, 2 * kBytes);
  enter(4, false, false);  // layer 1 was changed
  EXPECT_EQ(pages.moved().out, 3 * kBytes);
  EXPECT_EQ(pages.moved().in, 3 * kBytes);
}

TEST(TieredPages, APageIsCreatedOnce) {
  const std::unique_ptr<Device> device = make_cpu_device();
  TieredPages pages(*device, {1, 4, 2, kBytes, 4, {}}, "pages");
  pages.enter({.used = {0, 2}, .created = {0, 2}});
  EXPECT_THROW(pages.enter({.used = {0, 4}, .created = {1, 4}}), InternalError);
}

TEST(PageFile, SaysWhatIsWrong) {
  const TempDirectory directory;
  EXPECT_TRUE(says(error_of([&] { PageFile(directory.path() / "missing", 4096); }),
                   {"memory.disk_path", "missing", "cannot be written"}));
  EXPECT_TRUE(says(error_of([&] { PageFile(directory.path(), std::int64_t{1} << 60); }),
                   {"memory.disk_path", "no room"}));
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

// A file that ends too early: what it lost is never taken for pages.
TEST(PageFile, AShortReadIsAnError) {
  const TempDirectory directory;
  PageFile file(directory.path(), 100);
  std::vector<std::byte> bytes(200);
  EXPECT_TRUE(says(error_of([&] { file.read(bytes.data(), 200, 0); }), {"could not be read back"}));
}

}  // namespace
}  // namespace longstride
