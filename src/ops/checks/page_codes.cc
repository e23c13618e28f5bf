#include "ops/page_codes.h"

#include "base/error.h"
#include "tensor/page_codes.h"

namespace longstride::ops {
namespace {

void check_coded(const PagesView& codes, const PagesView& wide) {
  LS_CHECK(is_page_code(codes.dtype), "codes are {}", name_of(codes.dtype));
  LS_CHECK(wide.dtype == DType::kF32 || wide.dtype == DType::kBF16, "wide pages are {}",
           name_of(wide.dtype));
  LS_CHECK(codes.page_tokens > 0 && codes.kv_heads > 0 && codes.head_size > 0 &&
               codes.page_tokens == wide.page_tokens && codes.kv_heads == wide.kv_heads &&
               codes.head_size == wide.head_size,
           "pages of {} tokens, {} heads of {}, wide ones of {} tokens, {} heads of {}",
           codes.page_tokens, codes.kv_heads, codes.head_size, wide.page_tokens, wide.kv_heads,
           wide.head_size);
  for (const PagesView& pages : {codes, wide}) {
    const std::int64_t least = page_bytes_of(pages.dtype, pages.page_tokens, pages.kv_heads,
                                             pages.head_size, pages.centred);
    LS_CHECK(pages.page_bytes >= least && pages.page_bytes % 2 == 0, "{} bytes for a page of {}",
             pages.page_bytes, least);
  }
}

void check_exists(const PagesView& codes, const PagesView& wide, std::int64_t page) {
  LS_CHECK(page >= 0 && codes.slots[page] >= 0 && wide.slots[page] >= 0, "page {} does not exist",
           page);
}

}  // namespace

void check(const Stream&, const WidenPages& a) {
  check_coded(a.codes, a.wide);
  LS_CHECK(!a.codes.centred || !a.add, "centred pages are added");
  for (const std::int32_t page : a.pages) check_exists(a.codes, a.wide, page);
}

void check(const Stream&, const NarrowPages& a) {
  check_coded(a.codes, a.wide);
  const std::int64_t P = a.codes.page_tokens;
  LS_CHECK(a.first_token >= 0 && a.end_token >= a.first_token && a.first_token % P == 0,
           "tokens [{}, {})", a.first_token, a.end_token);
  LS_CHECK(a.codes.centred, "pages without centres");
  for (std::int64_t page = a.first_token / P; page * P < a.end_token; ++page)
    check_exists(a.codes, a.wide, page);
}

void check(const Stream&, const AddToCodedPages& a) {
  check_coded(a.codes, a.sums);
  LS_CHECK(a.sums.dtype == DType::kF32, "sums are {}", name_of(a.sums.dtype));
  LS_CHECK(!a.codes.centred, "sums for centred pages");
  for (const std::int32_t page : a.pages) check_exists(a.codes, a.sums, page);
}

}  // namespace longstride::ops
