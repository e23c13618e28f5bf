// The pages that each query page of each chunk selected in each sparse layer, from the selection to
// the chunk's backward pass. On the host, in a compact form: a chunk's distinct pages, and lists of
// 16-bit indices into them.
//
// Not thread-safe: the thread that runs the step owns it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "schedule/layout.h"
#include "tensor/selection.h"

namespace longstride {

// What the (chunk, layer)s that have earlier pages selected.
struct SelectionCounts {
  std::int64_t unions = 0, pages = 0, most = 0;  // distinct pages: of all together, the most of one
  std::int64_t visits = 0;                       // lengths of all lists

  // Distinct pages of a chunk and layer.
  double mean_union() const { return static_cast<double>(pages) / static_cast<double>(unions); }
  // Query pages that attend to a selected page.
  double reuse() const { return static_cast<double>(visits) / static_cast<double>(pages); }
  SelectionCounts& operator+=(const SelectionCounts& more) {
    unions += more.unions;
    pages += more.pages;
    most = std::max(most, more.most);
    visits += more.visits;
    return *this;
  }
};

class SelectedLists {
 public:
  static constexpr std::int64_t kMostUnionPages = 65535;

  // Allocates memory for any sequence with up to this layout's tokens.
  void reserve(const SequenceLayout& layout, const SparseLayers& sparse);
  // Stores the lists of a (chunk, layer): one per query page, ascending, `row` apart, each ended by
  // a negative number or by `row`.
  void store(std::int64_t chunk, std::int64_t layer, std::span<const std::int32_t> lists,
             std::int64_t row);

  // The chunk's distinct pages, ascending.
  std::span<const std::int32_t> pages(std::int64_t chunk, std::int64_t layer) const;
  // Of one query page: indices into those, ascending. Query pages after the last stored one have an
  // empty list.
  std::span<const std::uint16_t> list(std::int64_t chunk, std::int64_t layer,
                                      std::int64_t query_page) const;
  std::int64_t bytes() const;
  SelectionCounts counts() const;

 private:
  struct Slot {
    std::int64_t pages = 0, ranks = 0, lengths = 0;  // where its entries begin
    std::int64_t page_count = 0, list_count = 0, row = 0;
  };
  Slot& slot(std::int64_t chunk, std::int64_t layer) {
    return slots_.at(static_cast<std::size_t>(chunk * layers_ + layer));
  }
  const Slot& slot(std::int64_t chunk, std::int64_t layer) const {
    return slots_.at(static_cast<std::size_t>(chunk * layers_ + layer));
  }

  std::int64_t layers_ = 0;
  std::vector<Slot> slots_;  // by chunk, then layer
  // By far the most bytes, and not filled beforehand: planning makes many of these and stores
  // little.
  std::unique_ptr<std::int32_t[]> pages_;
  std::unique_ptr<std::uint16_t[]> ranks_;
  std::int64_t page_count_ = 0, rank_count_ = 0;
  std::vector<std::uint16_t> lengths_;  // of lists
  std::vector<std::int32_t> distinct_;  // of the lists being stored
};

}  // namespace longstride
