#include "ops/rope.h"

#include "base/error.h"

namespace longstride::ops {
namespace {

void check_tables(const ConstView& cos_TN, const ConstView& sin_TN, std::int64_t tokens,
                  std::int64_t head_size) {
  LS_CHECK(head_size % 2 == 0 && cos_TN.shape() == Shape({tokens, head_size / 2}) &&
               sin_TN.shape() == cos_TN.shape(),
           "cos {} sin {} for {} tokens of head size {}", cos_TN.shape().to_string(),
           sin_TN.shape().to_string(), tokens, head_size);
}

// Checks that tokens [begin, begin + T) of `x` fit the pages, and that those pages exist.
void check_pages(const PagesView& pages, const ConstView& x_TKC, const ConstView& other,
                 std::int64_t begin) {
  LS_CHECK(x_TKC.shape().rank() == 3 && other.shape() == x_TKC.shape() &&
               x_TKC.dim(1) == pages.kv_heads && x_TKC.dim(2) == pages.head_size,
           "{} and {} for pages of {} heads of {}", x_TKC.shape().to_string(),
           other.shape().to_string(), pages.kv_heads, pages.head_size);
  const std::int64_t P = pages.page_tokens;
  LS_CHECK(is_weight_type(pages.dtype) && P > 0 &&
               pages.page_bytes >= P * pages.token_stride() * size_of(pages.dtype),
           "pages of {} bytes hold no {} tokens of {}", pages.page_bytes, P, name_of(pages.dtype));
  LS_CHECK(begin >= 0, "begin {}", begin);
  for (std::int64_t page = begin / P; page * P < begin + x_TKC.dim(0); ++page) {
    LS_CHECK(pages.slots[page] >= 0, "page {} does not exist", page);
  }
}

}  // namespace

void check(const Stream&, const RopeTables& args) {
  const Shape &positions = args.positions_T.shape(), &frequencies = args.frequencies_N.shape();
  LS_CHECK(positions.rank() == 1 && frequencies.rank() == 1, "positions {} frequencies {}",
           positions.to_string(), frequencies.to_string());
  check_tables(args.cos_TN, args.sin_TN, positions[0], 2 * frequencies[0]);
}

void check(const Stream&, const Rope& args) {
  LS_CHECK(args.x_THC.shape().rank() == 3, "x {}", args.x_THC.shape().to_string());
  check_tables(args.cos_TN, args.sin_TN, args.x_THC.dim(0), args.x_THC.dim(2));
}

void check(const Stream&, const AppendKv& args) {
  check_pages(args.pages, args.k_TKC, args.v_TKC, args.begin);
  check_tables(args.cos_TN, args.sin_TN, args.k_TKC.dim(0), args.k_TKC.dim(2));
}

void check(const Stream&, const TakeKvGradient& args) {
  check_pages(args.pages, args.dk_TKC, args.dv_TKC, args.begin);
  check_tables(args.cos_TN, args.sin_TN, args.dk_TKC.dim(0), args.dk_TKC.dim(2));
}

}  // namespace longstride::ops
