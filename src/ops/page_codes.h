// Pages in 8 bits (tensor/page_codes.h) and the wide pages that attention works on: F32 or BF16,
// gathered for one segment at a time (attention/coded_pages.h). No matrix kernel reads codes.
//
// Pages are given as logical pages, each once, with slots in both views; the views have the same
// tokens, heads and head size. Only tokens before `end_token` exist.
#pragma once

#include <cstdint>
#include <span>

#include "ops/dispatch.h"
#include "tensor/pages_view.h"

namespace longstride::ops {

// wide = the value of every element, or wide += it in F32, rounded to the type of the wide pages.
// Rows of tokens from `end_token` on become zero (added to: stay as they are). Centred pages are
// not added.
struct WidenPages {
  PagesView codes;
  PagesView wide;
  std::span<const std::int32_t> pages = {};
  std::int64_t end_token = 0;
  bool add = false;
};
LS_OP(widen_pages, WidenPages)

// codes = the rows of tokens [first_token, end_token), to nearest, and the centres of their pages,
// of which first_token begins one. The pages are centred and exist; other rows stay as they are.
struct NarrowPages {
  PagesView wide;
  PagesView codes;
  std::int64_t first_token = 0, end_token = 0;
};
LS_OP(narrow_pages, NarrowPages)

// codes += sums: every row is read, widened and added to in F32, gets a new scale, and is rounded
// stochastically. The key, the token and the element in its row determine the random bits
// (tensor/stochastic_round.h). Rows whose sums are all zero keep their bytes. `sums` is F32, and
// the pages are not centred.
struct AddToCodedPages {
  PagesView sums;
  PagesView codes;
  std::span<const std::int32_t> pages = {};
  std::int64_t end_token = 0;
  std::uint64_t rounding = 0;
};
LS_OP(add_to_coded_pages, AddToCodedPages)

}  // namespace longstride::ops
