// Which block of the embedding's backward kernel adds which columns of which token. Plain
// arithmetic for host and device, so that a test can follow every block without a GPU.
//
// A token's rows are added in their order by one thread per column, whoever that is: how the work
// is shared out changes no bit.
#pragma once

#include <algorithm>

namespace longstride::ops::cuda {

// A token of more rows is long: one block would wait for its rows long after all others are done,
// so its columns are shared out in narrow slices.
inline constexpr int kLongRows = 64;
inline constexpr int kSliceBytes = 128;  // of a row: what memory delivers at once
inline constexpr int kTileRows = 32;     // of a slice that are brought at once

// The grid is blocks x pieces. First come slices of long tokens, one item each; then every block
// visits other tokens and takes its piece of their columns.
struct EmbeddingWork {
  int groups = 0;       // tokens, those of most rows first
  int long_groups = 0;  // the first of them: those of more than kLongRows rows
  int longest = 0;      // rows of the first one
  int blocks = 1, pieces = 1;
  int slices = 1;  // of a long token
  // Blocks that have items, and how many visits the others make before these join them. An
  // estimate: a visit of a full grid takes about as long as eight tiles of a slice.
  int busy = 0, head_start = 0;

  constexpr EmbeddingWork() = default;
  constexpr EmbeddingWork(int groups_, int long_groups_, int longest_, int blocks_, int pieces_,
                          int slices_)
      : groups(groups_),
        long_groups(long_groups_),
        longest(longest_),
        blocks(blocks_),
        pieces(pieces_),
        slices(slices_) {
    if (long_groups == 0) return;
    busy = std::min(blocks, (items() + pieces - 1) / pieces);
    const int each = (items() + item_stride() - 1) / item_stride();
    if (busy < blocks) head_start = each * ((longest + kTileRows - 1) / kTileRows) / 8;
  }

  // Item i is slice i % slices of token i / slices. A block has the first one, and every
  // item_stride-th after it.
  constexpr int items() const { return long_groups * slices; }
  constexpr int item_stride() const { return blocks * pieces; }
  constexpr int first_item(int block, int piece) const { return block * pieces + piece; }

  // What a block visits: first() and, while that is less than `groups`, after(). Blocks that begin
  // with many rows get those of fewest afterwards.
  struct Visit {
    int group, turn;  // and after how many visits the order of blocks turns round; 0: it has
  };
  constexpr Visit first(int block) const {
    const int idle = blocks - busy;
    if (head_start == 0) return {long_groups + block, 1};
    if (block >= busy) return {long_groups + block - busy, head_start};
    return {long_groups + head_start * idle + blocks - 1 - block, 0};
  }
  constexpr Visit after(const Visit& visit, int block) const {
    if (visit.turn == 0) return {visit.group + blocks, 0};
    if (visit.turn == 1) return {visit.group + 2 * (blocks - block) - 1, 0};
    return {visit.group + blocks - busy, visit.turn - 1};
  }
};

}  // namespace longstride::ops::cuda
