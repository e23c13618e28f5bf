#include "pages/tiered_pages.h"

#include <algorithm>

#include "base/error.h"

namespace longstride {
namespace {

constexpr std::int32_t kNone = -1;

}  // namespace

TieredPages::TieredPages(Device& device, const TieredShape& shape, const std::string& what)
    : device_(device),
      shape_(shape),
      chunks_((shape.logical_pages + shape.pages_per_chunk - 1) / shape.pages_per_chunk),
      pool_(device, shape.page_bytes, shape.capacity, what),
      away_(device, shape.page_bytes, shape.pages_per_chunk, shape.away, what),
      residency_(shape.layers, shape.capacity),
      slots_(static_cast<std::size_t>(shape.layers),
             std::vector<std::int32_t>(static_cast<std::size_t>(shape.logical_pages), kNone)),
      exists_(static_cast<std::size_t>(shape.layers),
              std::vector<bool>(static_cast<std::size_t>(shape.logical_pages))),
      blocks_(static_cast<std::size_t>(shape.layers * chunks_)) {}

PageRun TieredPages::pages_of(std::int64_t chunk) const {
  return {chunk * shape_.pages_per_chunk,
          std::min((chunk + 1) * shape_.pages_per_chunk, shape_.logical_pages)};
}

std::int64_t TieredPages::home(std::int64_t layer, std::int64_t page) const {
  const std::int64_t per_layer = pool_.capacity() / shape_.layers;
  return per_layer == 0 ? 0 : layer * per_layer + page % per_layer;
}

void TieredPages::enter(const Access& access) {
  const std::int64_t per = shape_.pages_per_chunk;
  const std::vector<bool>& exists = exists_.at(static_cast<std::size_t>(access.layer));
  LS_CHECK(access.created.size() == 0 ||
               (access.created.begin >= access.used.begin && access.created.end <= access.used.end),
           "pages {} to {} are created by a task that uses {} to {}", access.created.begin,
           access.created.end, access.used.begin, access.used.end);
  std::int64_t wanted = 0;
  for (std::int64_t page = access.created.begin; page < access.created.end; ++page)
    wanted += exists.at(static_cast<std::size_t>(page)) ? 0 : 1;
  const std::int64_t first = access.used.begin / per, end = (access.used.end + per - 1) / per;
  for (std::int64_t chunk = first; chunk < end; ++chunk)
    if (const BlockState& block = state({access.layer, chunk}); block.is_away)
      wanted += block.pages;
  make_room(wanted, access);
  for (std::int64_t chunk = first; chunk < end; ++chunk) {
    BlockState& block = state({access.layer, chunk});
    if (block.is_away) fetch({access.layer, chunk});
    if (access.changes) block.copy_is_right = false;
  }
  create(access);
}

void TieredPages::make_room(std::int64_t pages, const Access& access) {
  const std::int64_t per = shape_.pages_per_chunk;
  const BlockUse own{access.position, access.used.begin / per,
                     (access.used.end + per - 1) / per - 1};
  while (residency_.free_pages() < pages) {
    const std::optional<Block> block = residency_.victim(access.position, access.layer, own);
    LS_CHECK(block.has_value(), "{} pages at once, room for {}", pages, shape_.capacity);
    evict(*block);
  }
}

template <class F>
void TieredPages::for_runs(Block block, const F& f) {
  const PageRun pages = pages_of(block.chunk);
  for (std::int64_t page = pages.begin; page < pages.end;) {
    std::int64_t end = page + 1;
    if (slot(block.layer, page) != kNone) {
      while (end < pages.end && slot(block.layer, end) == slot(block.layer, end - 1) + 1) ++end;
      f(page - pages.begin, end - page, pool_.page(slot(block.layer, page)));
    }
    page = end;
  }
}

void TieredPages::evict(Block block) {
  BlockState& s = state(block);
  if (s.place < 0) s.place = away_.take();
  if (!s.copy_is_right)
    for_runs(block, [&](std::int64_t page, std::int64_t count, const std::byte* at) {
      away_.write(s.place, page, count, at);
    });
  s.is_away = s.copy_is_right = true;
  residency_.leave(block, s.pages);
  const PageRun pages = pages_of(block.chunk);
  for (std::int64_t page = pages.begin; page < pages.end; ++page)
    if (std::int32_t& at = slot(block.layer, page); at != kNone) {
      pool_.give(at);
      at = kNone;
    }
}

void TieredPages::fetch(Block block) {
  BlockState& s = state(block);
  const PageRun pages = pages_of(block.chunk);
  const std::vector<bool>& exists = exists_[static_cast<std::size_t>(block.layer)];
  for (std::int64_t page = pages.begin; page < pages.end; ++page)
    if (exists[static_cast<std::size_t>(page)])
      slot(block.layer, page) = pool_.take(home(block.layer, page));
  residency_.arrive(block, s.pages);
  for_runs(block, [&](std::int64_t page, std::int64_t count, std::byte* at) {
    away_.read(s.place, page, count, at);
  });
  s.is_away = false;
}

void TieredPages::create(const Access& access) {
  PageRun fresh{0, 0};  // slots that lie side by side are zeroed at once
  const auto zero = [&] {
    if (access.zeroed && fresh.size() > 0)
      device_.zero(pool_.page(static_cast<std::int32_t>(fresh.begin)),
                   fresh.size() * pool_.page_bytes());
  };
  std::vector<bool>& exists = exists_[static_cast<std::size_t>(access.layer)];
  for (std::int64_t page = access.created.begin; page < access.created.end; ++page) {
    const auto at = static_cast<std::size_t>(page);
    if (exists[at]) {
      LS_CHECK(access.existing_may_be_created, "layer {} page {} exists already", access.layer,
               page);
      continue;
    }
    exists[at] = true;
    const Block block{access.layer, page / shape_.pages_per_chunk};
    BlockState& s = state(block);
    ++s.pages;
    s.copy_is_right = false;
    residency_.arrive(block, 1);
    const std::int32_t taken = slot(access.layer, page) = pool_.take(home(access.layer, page));
    if (taken != fresh.end) {
      zero();
      fresh = {taken, taken};
    }
    ++fresh.end;
  }
  zero();
}

void TieredPages::release(std::int64_t layer, PageRun run) {
  const std::int64_t per = shape_.pages_per_chunk;
  for (std::int64_t chunk = run.begin / per; chunk * per < run.end; ++chunk) {
    const Block block{layer, chunk};
    BlockState& s = state(block);
    if (!s.is_away && s.pages > 0) residency_.leave(block, s.pages);
    if (s.place >= 0) away_.give(s.place);
    s = {};
    const PageRun pages = pages_of(chunk);
    for (std::int64_t page = pages.begin; page < pages.end; ++page) {
      exists_[static_cast<std::size_t>(layer)][static_cast<std::size_t>(page)] = false;
      if (std::int32_t& at = slot(layer, page); at != kNone) {
        pool_.give(at);
        at = kNone;
      }
    }
  }
}

void TieredPages::release_all() {
  for (std::int64_t layer = 0; layer < shape_.layers; ++layer)
    release(layer, {0, shape_.logical_pages});
}

}  // namespace longstride
