// Pools of codes are given as bytes. Codes and scales must be the same bits on every device, so
// nothing has a tolerance.
#include "ops/page_codes.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/cases/registry.h"
#include "tensor/page_codes.h"
#include "tensor/stochastic_round.h"

namespace longstride::ops {
namespace {

constexpr std::uint64_t kRoundingKey = 0x123456789abcdefu;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Tokens [first, end) of `pages` pages; the operations with a list of pages leave out page 1.
struct CodedCase {
  DType code, wide;
  std::int64_t pages, P, K, C, end;
  std::int64_t first = 0;
  std::int64_t between = 0;  // bytes after every page
  bool add = false;
  bool centred = true;
  bool odd_rows = true;  // zeros, tiny and large rows, and such that are not finite

  std::int64_t rows() const { return 2 * P * K; }
  std::int64_t coded_bytes() const { return page_bytes_of(code, P, K, C, centred) + between; }
  std::int64_t wide_bytes() const { return page_bytes_of(wide, P, K, C) + between; }
  std::vector<std::int32_t> listed() const {
    std::vector<std::int32_t> list;
    for (std::int64_t page = pages - 1; page >= 0; --page)
      if (page != 1) list.push_back(static_cast<std::int32_t>(page));
    return list;
  }
  // A slot of each pool is not used; the orders differ.
  std::vector<std::int32_t> coded_slots() const { return slots(-1, pages); }
  std::vector<std::int32_t> wide_slots() const { return slots(1, 2); }
  std::string label() const {
    return fmt::format("{} {} pages={} P={} K={} C={} tokens={}..{}{}{}{}",
                       code == DType::kI8 ? "int8" : "e4m3", name_of(wide), pages, P, K, C, first,
                       end, centred ? " centred" : "", add ? " add" : "",
                       between > 0 ? " apart" : "");
  }
  // What a call reads and writes of `count` pages, if it touches coded bytes and wide ones so
  // often.
  double bytes(std::int64_t count, std::int64_t coded_times, std::int64_t wide_times) const {
    return static_cast<double>(
        count * rows() *
        (coded_times * (C + 2) + wide_times * C * size_of(wide)));  // centres are few
  }

 private:
  std::vector<std::int32_t> slots(std::int64_t step, std::int64_t begin) const {
    std::vector<std::int32_t> all;
    for (std::int64_t i = 0; i < pages; ++i)
      all.push_back(static_cast<std::int32_t>((begin + step * i) % (pages + 1)));
    return all;
  }
};

// ---- references

// Of the codes without sign, ascending.
std::vector<double> code_magnitudes(DType t) {
  std::vector<double> values;
  for (int code = 0; code < 127; ++code) {
    const int exponent = code / 8, mantissa = code % 8;
    values.push_back(exponent == 0 ? mantissa * 0x1p-9
                                   : std::ldexp(1 + mantissa / 8.0, exponent - 7));
    if (t == DType::kI8) values.back() = code;
  }
  if (t == DType::kI8) values.push_back(127);
  return values;
}

// The code of x, rounded to nearest, or up in magnitude if what is cut off and `random` / 2^16 make
// a whole step.
int plain_code(DType t, const std::vector<double>& magnitudes, double x, int random = -1) {
  const double magnitude = std::fabs(x);
  std::int64_t code =
      std::upper_bound(magnitudes.begin(), magnitudes.end(), magnitude) - magnitudes.begin() - 1;
  if (code + 1 < std::ssize(magnitudes)) {
    const double low = magnitudes[at(code)], high = magnitudes[at(code + 1)],
                 part = (magnitude - low) / (high - low);
    if (random < 0 ? part > 0.5 || (part == 0.5 && code % 2 == 1) : part * 65536 + random >= 65536)
      ++code;
  }
  if (!std::signbit(x)) return static_cast<int>(code);
  return static_cast<int>(t == DType::kI8 ? (256 - code) % 256 : code + 128);
}

double plain_scale(const std::vector<double>& magnitudes, double most) {
  if (!std::isfinite(most)) return kNan;
  if (most < 0x1p-100) return 0;
  const double limit = magnitudes.back();
  double scale = std::exp2(std::floor(std::log2(most / limit)));
  for (const double step = scale / 128; scale * limit < most;) scale += step;
  return scale;
}

// The rows of a pool of codes.
class CodedRows {
 public:
  CodedRows(const CodedCase& a, std::vector<double>& bytes)
      : a_(a), bytes_(bytes), magnitudes_(code_magnitudes(a.code)) {}

  double scale(std::int64_t slot, std::int64_t row) const { return bf16_at(scale_at(slot, row)); }
  double centre(std::int64_t slot, std::int64_t row, std::int64_t c) const {
    return bf16_at(centre_at(slot, row) + 2 * c);
  }
  void set_centre(std::int64_t slot, std::int64_t row, std::int64_t c, bf16 centre) {
    set_bf16(centre_at(slot, row) + 2 * c, centre.bits);
  }
  double value(std::int64_t slot, std::int64_t row, std::int64_t c) const {
    const auto code = static_cast<int>(bytes_[at(code_at(slot, row) + c)]);
    const bool negative = code >= 128;
    const int magnitude = a_.code == DType::kI8 ? (negative ? 256 - code : code) : code % 128;
    const double value = (negative ? -1 : 1) * magnitudes_[at(magnitude)] * scale(slot, row);
    return a_.centred ? value + centre(slot, row, c) : value;  // -0 stays -0
  }
  // Codes a row of F32 values; `random` gives 16 bits for an element, or -1.
  template <class R>
  void set(std::int64_t slot, std::int64_t row, const std::vector<double>& x, const R& random) {
    double most = 0;
    for (const double v : x) most = std::isnan(v) || std::fabs(v) > most ? std::fabs(v) : most;
    for (const double v : x) most = std::isnan(v) ? v : most;
    const double scale = plain_scale(magnitudes_, most);
    const float inverse = scale > 0 ? static_cast<float>(1 / scale) : 0.0f;
    for (std::int64_t c = 0; c < a_.C; ++c) {
      const double scaled = inverse > 0 ? static_cast<float>(x[at(c)] * inverse) : 0.0;
      bytes_[at(code_at(slot, row) + c)] = plain_code(a_.code, magnitudes_, scaled, random(c));
    }
    set_bf16(scale_at(slot, row),
             std::isnan(scale) ? 0x7fc0 : to_bf16(static_cast<float>(scale)).bits);
  }

 private:
  double bf16_at(std::int64_t i) const {
    const auto bits = static_cast<std::uint16_t>(bytes_[at(i)] + 256 * bytes_[at(i + 1)]);
    return to_float(bf16{bits});
  }
  void set_bf16(std::int64_t i, int bits) {
    bytes_[at(i)] = bits % 256;
    bytes_[at(i + 1)] = bits >> 8;
  }
  std::int64_t code_at(std::int64_t slot, std::int64_t row) const {
    return slot * a_.coded_bytes() + row * a_.C;
  }
  std::int64_t scale_at(std::int64_t slot, std::int64_t row) const {
    return slot * a_.coded_bytes() + a_.rows() * a_.C + 2 * row;
  }
  std::int64_t centre_at(std::int64_t slot, std::int64_t row) const {
    return scale_at(slot, a_.rows()) + 2 * (row % (2 * a_.K) * a_.C);
  }
  const CodedCase& a_;
  std::vector<double>& bytes_;
  std::vector<double> magnitudes_;
};

// Where a row begins in the pool of wide pages.
std::int64_t wide_at(const CodedCase& a, std::int64_t slot, std::int64_t row) {
  return slot * (a.wide_bytes() / size_of(a.wide)) + row * a.C;
}

// ---- arguments

// Element c of a row of the given kind; u is in [-1, 1).
double odd_element(const CodedCase& a, std::int64_t kind, std::int64_t c, double u) {
  const double limit = code_limit(a.code);
  switch (kind) {
    case 0:
      return c % 2 == 0 ? 0.0 : -0.0;
    case 1:
      return c == 0 ? 1e-30 : u * 1e-30;
    case 2:
      return u * 1e-31;  // too small for a scale
    case 3:
      return c == 0 ? 1 : u * 0x1p-14;  // small codes
    case 4:
      return u * 2e38;
    case 5:
      return c == 0 ? limit : std::round(u * 2 * limit) / 2;  // halfway between codes
    case 6:
      return c == 0 ? 1 : u * 1e-40;
    case 7:
      return c == a.C / 2 ? kNan : u;
    case 8:
      return c == a.C - 1 ? -std::numeric_limits<double>::infinity() : u;
    default:
      return u;
  }
}

Shape wide_pool(const CodedCase& a) { return {(a.pages + 1) * a.wide_bytes() / size_of(a.wide)}; }

// In every second slot, tokens are the negatives of those before: centres are 0, and codes as odd
// as the rows.
void input_wide_pool(Problem& p, const CodedCase& a) {
  HostTensor& pool = p.input("wide", a.wide, wide_pool(a));
  const std::int64_t of_page = a.wide_bytes() / size_of(a.wide), of_token = 2 * a.K * a.C;
  for (std::int64_t i = 0; a.odd_rows && i < pool.elements(); ++i) {
    const bool negative = i / of_page % 2 == 0 && i % of_page / of_token % 2 == 1;
    pool.set(
        i, negative ? -pool.get(i - of_token) : odd_element(a, i / a.C % 13, i % a.C, pool.get(i)));
  }
}

// Rows of valid codes. Scales are zero, tiny, or not the smallest ones; `nan`: or NaN, which could
// not be compared after widening. Many pages repeat a few: drawing them all would take long.
HostTensor coded_pool(const CodedCase& a, bool nan) {
  HostTensor pool(DType::kU8, {(a.pages + 1) * a.coded_bytes()});
  Random random(3);
  const std::int64_t drawn = std::min<std::int64_t>(a.pages + 1, 8), size = a.coded_bytes();
  for (std::int64_t i = 0; i < drawn * size; ++i) {
    const std::uint32_t code = random.next_u32() % 256;
    const bool valid = a.code == DType::kI8 ? code != 128 : code % 128 != 127;
    pool.set(i, valid ? code : 0);
  }
  for (std::int64_t row = 0; row < drawn * a.rows(); ++row) {
    const double u = random.next_u32() * 0x1p-32 + 0.5;
    const std::int64_t kind = a.odd_rows ? row % 11 : 10;
    int bits = to_bf16(static_cast<float>(kind == 0 ? 0 : kind == 1 ? u * 0x1p-99 : u)).bits;
    if (nan && kind == 2) bits = 0x7fc0;
    const std::int64_t i = row / a.rows() * size + a.rows() * a.C + 2 * (row % a.rows());
    pool.set(i, bits % 256);
    pool.set(i + 1, bits >> 8);
  }
  for (std::int64_t i = 0; a.centred && i < drawn * 2 * a.K * a.C; ++i) {
    const int bits = to_bf16(static_cast<float>(random.normal())).bits;
    const std::int64_t columns = 2 * a.K * a.C,
                       to = i / columns * size + a.rows() * (a.C + 2) + 2 * (i % columns);
    pool.set(to, bits % 256);
    pool.set(to + 1, bits >> 8);
  }
  for (std::int64_t slot = drawn; slot <= a.pages; ++slot)
    std::copy_n(pool.bytes.begin() + (slot - drawn) * size, size, pool.bytes.begin() + slot * size);
  return pool;
}

PagesView coded_view(const CodedCase& a, const Bound& v, const std::vector<std::int32_t>& slots) {
  return {static_cast<std::byte*>(v("codes").data()),
          slots.data(),
          a.coded_bytes(),
          a.P,
          a.K,
          a.C,
          a.code,
          a.centred};
}

PagesView wide_view(const CodedCase& a, const Bound& v, const std::vector<std::int32_t>& slots) {
  return {static_cast<std::byte*>(v("wide").data()),
          slots.data(),
          a.wide_bytes(),
          a.P,
          a.K,
          a.C,
          a.wide};
}

// ---- problems

Problem widen_pages_problem(const CodedCase& a) {
  Problem p;
  p.arguments.push_back({"codes", Role::kInput, coded_pool(a, false), 0});
  p.update("wide", a.wide, wide_pool(a), 0);
  p.run = [a, coded = a.coded_slots(), wide = a.wide_slots(), pages = a.listed()](Stream& stream,
                                                                                  const Bound& v) {
    widen_pages(stream, {.codes = coded_view(a, v, coded),
                         .wide = wide_view(a, v, wide),
                         .pages = pages,
                         .end_token = a.end,
                         .add = a.add});
  };
  p.reference = [a](Values& v) {
    const CodedRows codes(a, v["codes"]);
    for (const std::int32_t page : a.listed())
      for (std::int64_t row = 0; row < a.rows(); ++row) {
        const bool exists = page * a.P + row / (2 * a.K) < a.end;
        if (!exists && a.add) continue;
        for (std::int64_t c = 0; c < a.C; ++c) {
          double& to = v["wide"][at(wide_at(a, a.wide_slots()[at(page)], row) + c)];
          const double value = exists ? codes.value(a.coded_slots()[at(page)], row, c) : 0;
          const auto sum = static_cast<float>(value + (a.add ? to : 0));
          to = a.wide == DType::kF32 ? sum : to_float(to_bf16(sum));
        }
      }
  };
  p.bytes = a.bytes(std::ssize(a.listed()), 1, a.add ? 2 : 1);
  return p;
}

Problem narrow_pages_problem(const CodedCase& a) {
  Problem p;
  input_wide_pool(p, a);
  p.arguments.push_back({"codes", Role::kUpdate, coded_pool(a, true), 0});
  std::vector<std::int32_t> coded = a.coded_slots(), wide = a.wide_slots();
  for (std::int64_t page = 0; page < a.first / a.P; ++page) coded[at(page)] = wide[at(page)] = -1;
  p.run = [a, coded, wide](Stream& stream, const Bound& v) {
    narrow_pages(stream, {.wide = wide_view(a, v, wide),
                          .codes = coded_view(a, v, coded),
                          .first_token = a.first,
                          .end_token = a.end});
  };
  p.reference = [a](Values& v) {
    CodedRows codes(a, v["codes"]);
    for (std::int64_t page = a.first / a.P; page * a.P < a.end; ++page) {
      const std::int64_t slot = a.coded_slots()[at(page)], columns = 2 * a.K * a.C,
                         tokens = std::min(a.P, a.end - page * a.P);
      const auto from = v["wide"].begin() + wide_at(a, a.wide_slots()[at(page)], 0);
      for (std::int64_t column = 0; column < columns; ++column) {
        float sum = 0;
        for (std::int64_t t = 0; t < tokens; ++t)
          sum += static_cast<float>(from[t * columns + column]);
        const double mean = sum / static_cast<float>(tokens);
        const bool is_centre = std::fabs(mean) < 0x1p126;
        codes.set_centre(slot, column / a.C, column % a.C,
                         to_bf16(static_cast<float>(is_centre ? mean : 0)));
      }
      for (std::int64_t row = 0; row < tokens * 2 * a.K; ++row) {
        std::vector<double> x(from + row * a.C, from + (row + 1) * a.C);
        for (std::int64_t c = 0; c < a.C; ++c)
          x[at(c)] = static_cast<float>(x[at(c)] - codes.centre(slot, row, c));
        codes.set(slot, row, x, [](std::int64_t) { return -1; });
      }
    }
  };
  p.bytes = a.bytes(a.pages, 1, 1);
  return p;
}

Problem add_to_coded_problem(const CodedCase& a) {
  Problem p;
  input_wide_pool(p, a);
  p.arguments.push_back({"codes", Role::kUpdate, coded_pool(a, true), 0});
  p.run = [a, coded = a.coded_slots(), wide = a.wide_slots(), pages = a.listed()](Stream& stream,
                                                                                  const Bound& v) {
    add_to_coded_pages(stream, {.sums = wide_view(a, v, wide),
                                .codes = coded_view(a, v, coded),
                                .pages = pages,
                                .end_token = a.end,
                                .rounding = kRoundingKey});
  };
  p.reference = [a](Values& v) {
    CodedRows codes(a, v["codes"]);
    for (const std::int32_t page : a.listed())
      for (std::int64_t row = 0; row < a.rows(); ++row) {
        const std::int64_t token = page * a.P + row / (2 * a.K), slot = a.coded_slots()[at(page)];
        if (token >= a.end) continue;
        const auto from = v["wide"].begin() + wide_at(a, a.wide_slots()[at(page)], row);
        std::vector<double> x(from, from + a.C);
        if (std::ranges::count(x, 0.0) == a.C) continue;
        for (std::int64_t c = 0; c < a.C; ++c)
          x[at(c)] = static_cast<float>(x[at(c)] + codes.value(slot, row, c));
        const RowRounding random(kRoundingKey, token);
        codes.set(slot, row, x, [&](std::int64_t c) {
          const auto element = static_cast<std::uint32_t>(row % (2 * a.K) * a.C + c);
          return static_cast<int>(random.bits_of(element));
        });
      }
  };
  p.bytes = a.bytes(std::ssize(a.listed()), 2, 1);
  return p;
}

}  // namespace

std::vector<OpCase> page_codes_cases() {
  OpCase widen{"widen_pages", {}, {}}, narrow{"narrow_pages", {}, {}},
      add{"add_to_coded_pages", {}, {}};
  for (const DType code : {DType::kI8, DType::kF8E4M3})
    for (const DType wide : {DType::kF32, DType::kBF16}) {
      for (CodedCase a :
           {CodedCase{code, wide, 1, 1, 1, 1, 1}, CodedCase{code, wide, 4, 16, 1, 5, 59, 0},
            CodedCase{code, wide, 3, 16, 3, 20, 41, 16}, CodedCase{code, wide, 5, 1, 2, 40, 4, 2},
            CodedCase{code, wide, 3, 16, 1, 33, 48, 16, 6 * size_of(wide)},
            CodedCase{code, wide, 4, 16, 2, 64, 60, 32},
            CodedCase{code, wide, 3, 16, 2, 96, 40, 0, 48},
            CodedCase{code, wide, 3, 128, 3, 128, 300, 128},
            CodedCase{code, wide, 2, 16, 1, 256, 25, 16},
            CodedCase{code, wide, 2, 16, 1, 264, 32, 0}}) {
        narrow.tests.push_back({a.label(), [a] { return narrow_pages_problem(a); }});
        a.first = 0;
        widen.tests.push_back({a.label(), [a] { return widen_pages_problem(a); }});
        a.centred = false;
        if (wide == DType::kF32)
          add.tests.push_back({a.label(), [a] { return add_to_coded_problem(a); }});
        widen.tests.push_back({a.label(), [a] { return widen_pages_problem(a); }});
        a.add = true;
        widen.tests.push_back({a.label(), [a] { return widen_pages_problem(a); }});
      }
      // What a GPU gathers for a segment of long attention, and less of it.
      for (const std::int64_t pages : {32, 544}) {
        CodedCase a{code, wide, pages, 128, 4, 128, pages * 128};
        a.odd_rows = false;
        auto& widen_to = pages == 32 ? widen.benchmarks : widen.benchmarks16;
        auto& narrow_to = pages == 32 ? narrow.benchmarks : narrow.benchmarks16;
        auto& add_to = pages == 32 ? add.benchmarks : add.benchmarks16;
        narrow_to.push_back({a.label(), [a] { return narrow_pages_problem(a); }});
        widen_to.push_back({a.label(), [a] { return widen_pages_problem(a); }});
        a.centred = false;
        if (wide == DType::kF32)
          add_to.push_back({a.label(), [a] { return add_to_coded_problem(a); }});
        a.add = true;
        widen_to.push_back({a.label(), [a] { return widen_pages_problem(a); }});
      }
    }
  return {widen, narrow, add};
}

}  // namespace longstride::ops
