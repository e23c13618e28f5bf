// View: a non-owning, contiguous, row-major tensor of up to four dimensions. Plain data; copying it
// copies the reference. In recording passes, views have shapes alone and data == nullptr.
//
// Letters used in names across the code:
//   T tokens of a chunk   D hidden size      H query heads   K key/value heads   C head size
//   F feed-forward size   V vocabulary       P tokens of a page   L layers       R rows of a block
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>

#include "base/error.h"
#include "tensor/dtype.h"

namespace longstride {

class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims) {
    LS_CHECK(dims.size() <= 4, "rank {}", dims.size());
    for (std::int64_t d : dims) dims_[static_cast<std::size_t>(rank_++)] = d;
  }
  int rank() const { return rank_; }
  std::int64_t operator[](int i) const { return dims_[static_cast<std::size_t>(i)]; }
  void set(int i, std::int64_t d) { dims_[static_cast<std::size_t>(i)] = d; }
  void append(std::int64_t d) {
    LS_CHECK(rank_ < 4, "rank {}", rank_);
    dims_[static_cast<std::size_t>(rank_++)] = d;
  }
  std::int64_t elements() const {
    std::int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= dims_[static_cast<std::size_t>(i)];
    return n;
  }
  bool operator==(const Shape&) const = default;
  std::string to_string() const;

 private:
  std::array<std::int64_t, 4> dims_{};  // unused ones stay 0, so that == may compare all
  int rank_ = 0;
};

// Bytes of a tensor. A block format is a matrix [O, I].
std::int64_t bytes_of(DType dtype, const Shape& shape);

template <class Void>
class BasicView {
 public:
  using Bytes = std::conditional_t<std::is_const_v<Void>, const std::byte, std::byte>;

  BasicView() = default;
  BasicView(Void* data, DType dtype, Shape shape) : data_(data), dtype_(dtype), shape_(shape) {}
  // A mutable view converts to a const one.
  // NOLINTNEXTLINE(google-explicit-constructor)
  operator BasicView<const void>() const { return {data_, dtype_, shape_}; }

  Void* data() const { return data_; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  std::int64_t dim(int i) const { return shape_[i]; }
  std::int64_t elements() const { return shape_.elements(); }
  std::int64_t bytes() const { return bytes_of(dtype_, shape_); }
  // False for an absent tensor (no bias); a view without data still has a rank.
  bool present() const { return shape_.rank() > 0; }

  template <class E>
  auto as() const {
    LS_CHECK(dtype_ == dtype_of<E>(), "tensor is {}, wanted {}", name_of(dtype_),
             name_of(dtype_of<E>()));
    return static_cast<std::conditional_t<std::is_const_v<Void>, const E*, E*>>(data_);
  }

  // Rows [begin, begin + count) of the first dimension.
  BasicView rows(std::int64_t begin, std::int64_t count) const {
    LS_CHECK(begin >= 0 && count >= 0 && begin <= shape_[0] && count <= shape_[0] - begin,
             "rows {}+{} of {}", begin, count, shape_.to_string());
    LS_CHECK(!is_block_format(dtype_), "rows of {}", name_of(dtype_));
    Shape s = shape_;
    s.set(0, count);
    const std::int64_t row_bytes = shape_[0] == 0 ? 0 : bytes() / shape_[0];
    return {data_ == nullptr ? nullptr : static_cast<Bytes*>(data_) + begin * row_bytes, dtype_, s};
  }
  // The same elements under another shape.
  BasicView reshaped(Shape s) const {
    LS_CHECK(s.elements() == elements() && !is_block_format(dtype_), "{} {} as {}", name_of(dtype_),
             shape_.to_string(), s.to_string());
    return {data_, dtype_, s};
  }

 private:
  Void* data_ = nullptr;
  DType dtype_ = DType::kF32;
  Shape shape_;
};

using View = BasicView<void>;
using ConstView = BasicView<const void>;

}  // namespace longstride
