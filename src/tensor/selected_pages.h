// The pages before the chunk in the visit lists of sparse attention. A page's rank is its position
// in a query page's list; kernels that copy selected pages together take a range of ranks at a
// time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tensor/pages_view.h"

namespace longstride {

struct SelectedCount {
  std::int64_t least = 0, most = 0;  // pages of one list
  std::int64_t distinct = 0;         // pages of all lists
};
SelectedCount count_selected(const VisitsView& visits, std::int64_t page_tokens);

// A selected page and the places of its copies for some ranks.
struct SelectedPage {
  std::int32_t page = 0;
  std::int32_t number = 0;          // among the distinct selected pages, ascending
  std::int32_t begin = 0, end = 0;  // of SelectedRanks::places()
  // Whether these ranks hold the first and the last of the page's visits.
  bool first = true, last = true;

  bool operator==(const SelectedPage&) const = default;
};

// The copies of ranks [begin, end) lie in the order [query page][rank]; all lists have these ranks.
// Reused from call to call: after the largest lists, building allocates nothing. Not thread-safe.
class SelectedRanks {
 public:
  // The slots of the pages to copy, in the order of the copies. Valid until the next call.
  std::span<const std::int32_t> slots(const VisitsView& visits, const PagesView& pages,
                                      std::int64_t begin, std::int64_t end);

  // The transpose: for each selected page that these ranks hold, ascending, where its copies are,
  // by ascending query page. Valid until the next call.
  void build(const VisitsView& visits, std::int64_t page_tokens, std::int64_t begin,
             std::int64_t end);
  std::span<const SelectedPage> pages() const { return pages_; }
  // For each of pages(): -1 if it is among `coded`, which ascend, else its slot in `others`. Valid
  // until the next call.
  std::span<const std::int32_t> slots_of_others(std::span<const std::int32_t> coded,
                                                const PagesView& others);
  std::span<const std::int32_t> places() const { return places_; }

 private:
  std::vector<std::int32_t> slots_, places_;
  std::vector<SelectedPage> pages_;
  std::vector<std::int64_t> next_;  // per query page: the rank of its next page
};

}  // namespace longstride
