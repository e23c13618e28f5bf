// Pages in 8 bits on the CPU: a task per page, row by row. CUDA gives the same bits
// (cuda/page_codes.cu).
#include "ops/page_codes.h"

#include <algorithm>
#include <bit>
#include <type_traits>

#include "base/error.h"
#include "base/thread_pool.h"
#include "ops/cpu/widen.h"
#include "tensor/page_codes.h"
#include "tensor/stochastic_round.h"

namespace longstride::ops::cpu {
namespace {

constexpr std::int64_t kMostInRow = 1024;  // a row is widened on the stack

// Calls f(a constant of type DType), so that the code's type is known when f is compiled.
template <class F>
void with_code(DType code, const F& f) {
  if (code == DType::kI8) return f(std::integral_constant<DType, DType::kI8>{});
  f(std::integral_constant<DType, DType::kF8E4M3>{});
}

// A coded page and the wide page of the same tokens; rows are numbered as in [P][2][K].
class RowsOfPage {
 public:
  RowsOfPage(const PagesView& codes, const PagesView& wide, std::int64_t page)
      : wide_(wide),
        coded_page_(codes.base + codes.slots[page] * codes.page_bytes),
        wide_page_(wide.base + wide.slots[page] * wide.page_bytes) {
    LS_CHECK(row_elements() <= kMostInRow, "heads of {}", row_elements());
  }
  std::int64_t row_elements() const { return wide_.head_size; }
  std::int64_t rows_of_token() const { return 2 * wide_.kv_heads; }
  std::uint8_t* codes(std::int64_t row) const {
    return reinterpret_cast<std::uint8_t*>(coded_page_) + row * row_elements();
  }
  bf16& scale(std::int64_t row) const { return scales()[row]; }
  // Of a row, in a centred page.
  bf16* centres(std::int64_t row) const {
    return scales() + wide_.page_tokens * rows_of_token() + row % rows_of_token() * row_elements();
  }
  View wide(std::int64_t row) const {
    return {
        wide_page_ + row * row_elements() * size_of(wide_.dtype), wide_.dtype, {row_elements()}};
  }

 private:
  bf16* scales() const {
    return reinterpret_cast<bf16*>(coded_page_ +
                                   wide_.page_tokens * rows_of_token() * row_elements());
  }
  const PagesView& wide_;
  std::byte *coded_page_, *wide_page_;
};

// The scale of a row of F32.
bf16 scale_of(DType code, const float* x, std::int64_t n) {
  std::uint32_t most = 0;
  for (std::int64_t i = 0; i < n; ++i)
    most = std::max(most, std::bit_cast<std::uint32_t>(x[i]) & 0x7fffffffu);
  return row_scale(code, most);
}

// Rows of a page that are of tokens before `end_token`.
std::int64_t rows_before(const RowsOfPage& rows, const PagesView& view, std::int64_t page,
                         std::int64_t end_token) {
  const std::int64_t tokens =
      std::clamp<std::int64_t>(end_token - page * view.page_tokens, 0, view.page_tokens);
  return tokens * rows.rows_of_token();
}

template <DType kCode>
void widen_page(const WidenPages& a, std::int64_t page) {
  const RowsOfPage rows(a.codes, a.wide, page);
  const std::int64_t C = rows.row_elements(),
                     filled = rows_before(rows, a.codes, page, a.end_token),
                     all = a.codes.page_tokens * rows.rows_of_token();
  float x[kMostInRow];
  for (std::int64_t row = 0; row < filled; ++row) {
    const View wide = rows.wide(row);
    const std::uint8_t* codes = rows.codes(row);
    const float scale = to_float(rows.scale(row));
    // The products are exact, so a fused multiply-add gives the same bits.
    if (a.add) {
      widen(wide, 0, C, x);
      for (std::int64_t i = 0; i < C; ++i) x[i] += code_value(kCode, codes[i]) * scale;
    } else if (a.codes.centred) {
      const bf16* centres = rows.centres(row);
      for (std::int64_t i = 0; i < C; ++i)
        x[i] = code_value(kCode, codes[i]) * scale + to_float(centres[i]);
    } else {
      for (std::int64_t i = 0; i < C; ++i) x[i] = code_value(kCode, codes[i]) * scale;
    }
    narrow(x, C, wide, 0);
  }
  if (a.add || filled == all) return;
  std::fill_n(static_cast<std::byte*>(rows.wide(filled).data()),
              (all - filled) * C * size_of(a.wide.dtype), std::byte{0});
}

// Sets the centres of a page's first rows.
void set_centres(const RowsOfPage& rows, std::int64_t filled) {
  const std::int64_t C = rows.row_elements(), per_token = rows.rows_of_token(),
                     tokens = filled / per_token;
  float x[kMostInRow], sums[kMostInRow];
  for (std::int64_t first = 0; first < per_token; ++first) {
    std::fill_n(sums, C, 0.0f);
    for (std::int64_t row = first; row < filled; row += per_token) {
      widen(rows.wide(row), 0, C, x);
      for (std::int64_t i = 0; i < C; ++i) sums[i] += x[i];
    }
    bf16* centres = rows.centres(first);
    for (std::int64_t i = 0; i < C; ++i)
      centres[i] = centre_of(sums[i], static_cast<float>(tokens));
  }
}

template <DType kCode>
void narrow_page(const NarrowPages& a, std::int64_t page) {
  const RowsOfPage rows(a.codes, a.wide, page);
  const std::int64_t C = rows.row_elements(),
                     filled = rows_before(rows, a.codes, page, a.end_token);
  set_centres(rows, filled);
  float x[kMostInRow];
  for (std::int64_t row = 0; row < filled; ++row) {
    widen(rows.wide(row), 0, C, x);
    const bf16* centres = rows.centres(row);
    for (std::int64_t i = 0; i < C; ++i) x[i] -= to_float(centres[i]);
    const bf16 scale = scale_of(kCode, x, C);
    const float inverse = inverse_scale(scale);
    std::uint8_t* codes = rows.codes(row);
    for (std::int64_t i = 0; i < C; ++i)
      codes[i] = nearest_code(kCode, scaled_element(x[i], inverse));
    rows.scale(row) = scale;
  }
}

template <DType kCode>
void add_to_page(const AddToCodedPages& a, std::int64_t page) {
  const RowsOfPage rows(a.codes, a.sums, page);
  const std::int64_t C = rows.row_elements(), per_token = rows.rows_of_token();
  float x[kMostInRow];
  for (std::int64_t row = 0; row < rows_before(rows, a.codes, page, a.end_token); ++row) {
    const float* sums = rows.wide(row).as<float>();
    if (std::all_of(sums, sums + C, [](float sum) { return sum == 0.0f; })) continue;
    std::uint8_t* codes = rows.codes(row);
    const float before = to_float(rows.scale(row));
    // The product is exact, so a fused multiply-add gives the same bits.
    for (std::int64_t i = 0; i < C; ++i) x[i] = code_value(kCode, codes[i]) * before + sums[i];
    const bf16 scale = scale_of(kCode, x, C);
    const float inverse = inverse_scale(scale);
    const RowRounding random(a.rounding, page * a.codes.page_tokens + row / per_token);
    const auto first = static_cast<std::uint32_t>(row % per_token * C);
    for (std::int64_t i = 0; i < C; ++i)
      codes[i] = random_code(kCode, scaled_element(x[i], inverse),
                             random.bits_of(first + static_cast<std::uint32_t>(i)));
    rows.scale(row) = scale;
  }
}

}  // namespace

void widen_pages(Stream&, const WidenPages& a) {
  with_code(a.codes.dtype, [&](auto code) {
    parallel_for(std::ssize(a.pages), [&](std::int64_t i) {
      widen_page<decltype(code)::value>(a, a.pages[static_cast<std::size_t>(i)]);
    });
  });
}

void narrow_pages(Stream&, const NarrowPages& a) {
  const std::int64_t P = a.codes.page_tokens, first = a.first_token / P,
                     end = (a.end_token + P - 1) / P;
  if (a.first_token == a.end_token) return;
  with_code(a.codes.dtype, [&](auto code) {
    parallel_for(end - first,
                 [&](std::int64_t i) { narrow_page<decltype(code)::value>(a, first + i); });
  });
}

void add_to_coded_pages(Stream&, const AddToCodedPages& a) {
  with_code(a.codes.dtype, [&](auto code) {
    parallel_for(std::ssize(a.pages), [&](std::int64_t i) {
      add_to_page<decltype(code)::value>(a, a.pages[static_cast<std::size_t>(i)]);
    });
  });
}

}  // namespace longstride::ops::cpu
