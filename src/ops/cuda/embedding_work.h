// Which block of the embedding's backward kernel adds which columns of which token. Plain
// arithmetic for host and device, so that a test can follow every block without a GPU.
//
// One thread per column adds a token's rows in their order, whichever thread that is: the division
// of work changes no bit.
#pragma once

#include <algorithm>

namespace longstride::ops::cuda {

// A token with more rows is long: one block would still be reading its rows long after the others
// are done, so its columns are divided into narrow slices.
inline constexpr int kLongRows = 64;
inline constexpr int kSliceBytes = 128;  // of a row: one memory transaction
inline constexpr int kTileRows = 32;     // rows of a slice that are copied at once

// The grid is blocks x pieces. Slices of long tokens come first, one item each; then every block
// visits other tokens and adds its piece of their columns.
struct EmbeddingWork {
  int groups = 0;       // tokens, those with the most rows first
  int long_groups = 0;  // the first of them: those with more than kLongRows rows
  int longest = 0;      // rows of the first one
  int blocks = 1, pieces = 1;
  int slices = 1;  // of a long token
  // The blocks that have items, and an estimate of how many visits the others make before these
  // join them: a visit of a full grid takes about as long as eight tiles of a slice.
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

  // Item i is slice i % slices of token i / slices. A block has its first_item and every
  // item_stride-th one after it.
  constexpr int items() const { return long_groups * slices; }
  constexpr int item_stride() const { return blocks * pieces; }
  constexpr int first_item(int block, int piece) const { return block * pieces + piece; }

  // The groups that a block visits: first(), then after() while that is less than `groups`. Blocks
  // that begin with many rows get the fewest afterwards.
  struct Visit {
    int group, turn;  // turn: after how many visits the order of blocks reverses; 0: it has
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
