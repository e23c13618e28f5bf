#include "tensor/view.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace longstride {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

TEST(Shape, CountsAndCompares) {
  const Shape none, one{7}, four{2, 3, 4, 5};
  EXPECT_EQ(none.rank(), 0);
  EXPECT_EQ(none.elements(), 1);
  EXPECT_EQ(one.elements(), 7);
  EXPECT_EQ(four.elements(), 120);
  EXPECT_EQ(four[2], 4);
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_NE((Shape{2, 3}), (Shape{3, 2}));
  EXPECT_NE((Shape{2}), (Shape{2, 0}));
  EXPECT_NE((Shape{2}), (Shape{2, 1}));
}

TEST(Shape, PrintsItself) {
  EXPECT_EQ(Shape{}.to_string(), "[]");
  EXPECT_EQ((Shape{5}).to_string(), "[5]");
  EXPECT_EQ((Shape{2, 3000000000, 4}).to_string(), "[2, 3000000000, 4]");
}

TEST(Shape, HasAtMostFourDimensions) {
  EXPECT_THROW((Shape{1, 2, 3, 4, 5}), InternalError);
  Shape shape{1, 2, 3};
  shape.append(4);
  EXPECT_EQ(shape, (Shape{1, 2, 3, 4}));
  EXPECT_THROW(shape.append(5), InternalError);
  shape.set(0, 9);
  EXPECT_EQ(shape, (Shape{9, 2, 3, 4}));
}

TEST(Shape, CountsPast32Bits) {
  EXPECT_EQ((Shape{1 << 20, 1 << 20, 8}).elements(), std::int64_t{1} << 43);
}

TEST(View, AbsentAndShapesAlone) {
  EXPECT_FALSE(View().present());
  const View shapes(nullptr, DType::kBF16, {3, 4});
  EXPECT_TRUE(shapes.present());
  EXPECT_EQ(shapes.bytes(), 24);
  EXPECT_EQ(shapes.dim(1), 4);
  EXPECT_EQ(shapes.rows(1, 2).data(), nullptr);
  EXPECT_EQ(shapes.rows(1, 2).shape(), (Shape{2, 4}));
}

TEST(View, RowsOfTheFirstDimension) {
  std::vector<float> data(24);
  const View view(data.data(), DType::kF32, {4, 2, 3});
  const View rows = view.rows(1, 2);
  EXPECT_EQ(rows.shape(), (Shape{2, 2, 3}));
  EXPECT_EQ(rows.as<float>(), data.data() + 6);
  EXPECT_EQ(view.rows(4, 0).as<float>(), data.data() + 24);
  EXPECT_EQ(view.rows(0, 4).shape(), view.shape());
  const View empty(data.data(), DType::kF32, {0, 3});
  EXPECT_EQ(empty.rows(0, 0).as<float>(), data.data());
}

TEST(View, RefusesRowsItHasNot) {
  std::vector<float> data(8);
  const View view(data.data(), DType::kF32, {4, 2});
  EXPECT_THROW(view.rows(-1, 1), InternalError);
  EXPECT_THROW(view.rows(0, -1), InternalError);
  EXPECT_THROW(view.rows(0, 5), InternalError);
  EXPECT_THROW(view.rows(4, 1), InternalError);
  EXPECT_THROW(view.rows(5, 0), InternalError);
  EXPECT_THROW(view.rows(1, kMost), InternalError);  // the sum would wrap around
  EXPECT_THROW(view.rows(kMost, 1), InternalError);
}

// Computes only addresses: nothing of this size is allocated or read.
TEST(View, RowsPastTwoGigabytes) {
  const std::uintptr_t base = std::uintptr_t{1} << 32;
  for (const auto& [dtype, bytes] :
       {std::pair{DType::kBF16, 2}, {DType::kF32, 4}, {DType::kF64, 8}}) {
    const View view(reinterpret_cast<void*>(base), dtype, {std::int64_t{1} << 24, 5, 1000});
    const View rows = view.rows(10'000'019, 3);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(rows.data()),
              base + std::uintptr_t{10'000'019} * 5000 * static_cast<unsigned>(bytes));
    EXPECT_EQ(view.bytes(), (std::int64_t{1} << 24) * 5000 * bytes);
  }
}

TEST(View, ReshapesTheSameElements) {
  std::vector<float> data(24);
  const View view(data.data(), DType::kF32, {4, 6});
  const View other = view.reshaped({2, 3, 4});
  EXPECT_EQ(other.shape(), (Shape{2, 3, 4}));
  EXPECT_EQ(other.data(), view.data());
  EXPECT_THROW(view.reshaped({5, 5}), InternalError);
  EXPECT_THROW(view.reshaped({}), InternalError);
}

TEST(View, GivesItsOwnTypeOnly) {
  std::vector<std::uint16_t> data(4);
  const View view(data.data(), DType::kBF16, {4});
  EXPECT_EQ(static_cast<void*>(view.as<bf16>()), data.data());
  EXPECT_THROW(view.as<f16>(), InternalError);
  EXPECT_THROW(view.as<float>(), InternalError);
  try {
    view.as<std::int32_t>();
    FAIL() << "nothing was thrown";
  } catch (const InternalError& e) {
    EXPECT_NE(std::string(e.what()).find("tensor is BF16, wanted I32"), std::string::npos)
        << e.what();
  }
}

TEST(View, ConvertsToConst) {
  std::vector<float> data(4);
  const View view(data.data(), DType::kF32, {4});
  const ConstView constant = view;
  static_assert(std::is_same_v<decltype(constant.as<float>()), const float*>);
  EXPECT_EQ(constant.data(), view.data());
  EXPECT_EQ(constant.rows(2, 1).as<float>(), data.data() + 2);
}

}  // namespace
}  // namespace longstride
