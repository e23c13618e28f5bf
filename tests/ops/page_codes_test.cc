// What the cases of src/ops/cases/page_codes.cc cannot show: rows that are not finite, sums of many
// additions, and calls that are refused.
#include "ops/page_codes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "tensor/page_codes.h"

namespace longstride::ops {
namespace {

constexpr std::int64_t kTokens = 4, kHeads = 2, kSize = 32, kPages = 2;
constexpr std::int64_t kRows = 2 * kTokens * kHeads;  // of a page

// A pool of two pages in slots 1 and 0.
class Pool {
 public:
  explicit Pool(DType t, bool centred = false)
      : bytes_(
            static_cast<std::size_t>(kPages * page_bytes_of(t, kTokens, kHeads, kSize, centred))) {
    view = {bytes_.data(), slots_, std::ssize(bytes_) / kPages, kTokens, kHeads, kSize, t, centred};
  }
  Pool(const Pool&) = delete;
  float* row(std::int64_t page, std::int64_t row) {
    return reinterpret_cast<float*>(bytes_.data() + slots_[page] * view.page_bytes) + row * kSize;
  }
  PagesView view;

 private:
  std::vector<std::byte> bytes_;
  std::int32_t slots_[kPages] = {1, 0};
};

class CodedPages : public testing::TestWithParam<DType> {
 protected:
  const std::vector<std::int32_t> pages_ = {0, 1};
  Stream stream_{DeviceKind::kCpu};
  Pool codes_{GetParam()}, centred_{GetParam(), true}, wide_{DType::kF32};
};

TEST_P(CodedPages, ARowThatIsNotFiniteBecomesNanAlone) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    const auto widened = [&](const Pool& codes) {
      widen_pages(stream_, {.codes = codes.view,
                            .wide = wide_.view,
                            .pages = pages_,
                            .end_token = kPages * kTokens});
    };
    const auto expect_nan_in = [&](auto is_bad, float other) {
      for (std::int64_t page = 0; page < kPages; ++page)
        for (std::int64_t row = 0; row < kRows; ++row)
          for (std::int64_t c = 0; c < kSize; ++c) {
            const float x = wide_.row(page, row)[c];
            if (is_bad(page, row))
              ASSERT_TRUE(std::isnan(x)) << page << " " << row << " " << c;
            else
              ASSERT_NEAR(x, other, 0.07f) << page << " " << row << " " << c;
          }
    };
    for (std::int64_t page = 0; page < kPages; ++page)
      for (std::int64_t i = 0; i < kRows * kSize; ++i) wide_.row(page, 0)[i] = 1.0f;
    wide_.row(1, 3)[7] = bad;
    narrow_pages(stream_,
                 {.wide = wide_.view, .codes = centred_.view, .end_token = kPages * kTokens});
    widened(centred_);
    expect_nan_in([](auto page, auto row) { return page == 1 && row == 3; }, 1.0f);
    // A sum that is finite does not heal a row.
    Pool sums(DType::kF32), codes(GetParam());
    const auto add = [&] {
      add_to_coded_pages(
          stream_,
          {.sums = sums.view, .codes = codes.view, .pages = pages_, .end_token = kPages * kTokens});
    };
    for (std::int64_t page = 0; page < kPages; ++page)
      for (std::int64_t i = 0; i < kRows * kSize; ++i) sums.row(page, 0)[i] = 0.5f;
    sums.row(0, 5)[0] = bad;
    add();
    sums.row(0, 5)[0] = 0.5f;
    add();
    widened(codes);
    expect_nan_in([](auto page, auto row) { return page == 0 && row == 5; }, 1.0f);
  }
}

// A bias of keys: what all tokens have in common takes nothing of the codes' range.
TEST_P(CodedPages, WhatTokensHaveInCommonCostsNoPrecision) {
  for (const float bias : {0.0f, 300.0f}) {
    for (std::int64_t page = 0; page < kPages; ++page)
      for (std::int64_t i = 0; i < kRows * kSize; ++i)
        wide_.row(page, 0)[i] =
            std::sin(static_cast<float>(31 * i + page)) + (i % kSize == 9 ? bias : 0.0f);
    Pool before(DType::kF32);
    std::copy_n(wide_.row(1, 0), kRows * kSize, before.row(1, 0));
    narrow_pages(stream_,
                 {.wide = wide_.view, .codes = centred_.view, .end_token = kPages * kTokens});
    widen_pages(stream_, {.codes = centred_.view,
                          .wide = wide_.view,
                          .pages = pages_,
                          .end_token = kPages * kTokens});
    for (std::int64_t i = 0; i < kRows * kSize; ++i)
      ASSERT_NEAR(wide_.row(1, 0)[i], before.row(1, 0)[i], GetParam() == DType::kI8 ? 0.02f : 0.15f)
          << bias << " " << i;
  }
}

// Each addition is far less than a step between codes, and lost if it is rounded to nearest.
TEST_P(CodedPages, SmallSumsAddUp) {
  constexpr int kAdditions = 400;
  constexpr float kAdded = 0x1p-12f;
  Pool sums(DType::kF32), before(DType::kF32);
  for (std::int64_t page = 0; page < kPages; ++page)
    for (std::int64_t i = 0; i < kRows * kSize; ++i)
      sums.row(page, 0)[i] = i % kSize == 0 ? 1.0f : 0.25f;
  const auto widen = [&](Pool& to) {
    widen_pages(
        stream_,
        {.codes = codes_.view, .wide = to.view, .pages = pages_, .end_token = kPages * kTokens});
  };
  const auto add = [&](int key) {
    add_to_coded_pages(stream_, {.sums = sums.view,
                                 .codes = codes_.view,
                                 .pages = pages_,
                                 .end_token = kPages * kTokens,
                                 .rounding = static_cast<std::uint64_t>(key)});
  };
  add(kAdditions);
  widen(before);
  for (std::int64_t page = 0; page < kPages; ++page)
    for (std::int64_t i = 0; i < kRows * kSize; ++i)
      sums.row(page, 0)[i] = i % kSize == 0 ? 0.0f : kAdded;
  for (int i = 0; i < kAdditions; ++i) add(i);
  widen(wide_);
  double sum = 0, squares = 0;
  for (std::int64_t page = 0; page < kPages; ++page)
    for (std::int64_t i = 0; i < kRows * kSize; ++i) {
      const bool added = i % kSize != 0;
      const double error = wide_.row(page, 0)[i] - before.row(page, 0)[i] -
                           (added ? kAdditions * static_cast<double>(kAdded) : 0);
      sum += error;
      squares += error * error;
    }
  EXPECT_GT(squares, 0);
  EXPECT_LT(std::fabs(sum), 4 * std::sqrt(squares));
  EXPECT_LT(std::sqrt(squares / (kPages * kRows * kSize)), 0.08);  // of 0.1
}

TEST_P(CodedPages, RefuseWhatDoesNotFit) {
  const auto widen = [&](const PagesView& codes, const PagesView& wide,
                         const std::vector<std::int32_t>& pages) {
    widen_pages(stream_, {.codes = codes, .wide = wide, .pages = pages, .end_token = 1});
  };
  widen(codes_.view, wide_.view, pages_);
  EXPECT_THROW(widen(wide_.view, codes_.view, pages_), InternalError);
  EXPECT_THROW(widen(codes_.view, wide_.view, {-1}), InternalError);
  PagesView other = wide_.view;
  other.head_size = kSize / 2;
  EXPECT_THROW(widen(codes_.view, other, pages_), InternalError);
  other = codes_.view;
  other.page_bytes -= 2;  // no room for the last scale
  EXPECT_THROW(widen(other, wide_.view, pages_), InternalError);
  const std::int32_t one[] = {0, -1};
  other = wide_.view;
  other.slots = one;
  widen(codes_.view, other, {0});
  EXPECT_THROW(widen(codes_.view, other, pages_), InternalError);
  const auto narrow = [&](const PagesView& wide, const PagesView& codes, std::int64_t first) {
    narrow_pages(stream_,
                 {.wide = wide, .codes = codes, .first_token = first, .end_token = kTokens + 1});
  };
  narrow(wide_.view, centred_.view, 0);
  EXPECT_THROW(narrow(other, centred_.view, 0), InternalError);
  EXPECT_THROW(narrow(wide_.view, centred_.view, 1), InternalError);
  EXPECT_THROW(narrow(wide_.view, codes_.view, 0), InternalError);
  PagesView cut = codes_.view;  // no room for centres
  cut.centred = true;
  EXPECT_THROW(widen(cut, wide_.view, pages_), InternalError);
  const Pool sums(DType::kBF16);
  EXPECT_THROW(
      add_to_coded_pages(stream_, {.sums = sums.view, .codes = codes_.view, .pages = pages_}),
      InternalError);
  const Pool floats(DType::kF32);
  EXPECT_THROW(
      add_to_coded_pages(stream_, {.sums = floats.view, .codes = centred_.view, .pages = pages_}),
      InternalError);
  EXPECT_THROW(widen_pages(stream_, {.codes = centred_.view,
                                     .wide = wide_.view,
                                     .pages = pages_,
                                     .end_token = 1,
                                     .add = true}),
               InternalError);
  for (const DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kCuda}) {
    Stream stream(kind);
    EXPECT_THROW(widen_pages(stream, {}), InternalError);
    EXPECT_THROW(narrow_pages(stream, {}), InternalError);
    EXPECT_THROW(add_to_coded_pages(stream, {}), InternalError);
  }
}

std::string code_name(const testing::TestParamInfo<DType>& code) {
  return code.param == DType::kI8 ? "int8" : "e4m3";
}

INSTANTIATE_TEST_SUITE_P(Codes, CodedPages, testing::Values(DType::kI8, DType::kF8E4M3), code_name);

}  // namespace
}  // namespace longstride::ops
