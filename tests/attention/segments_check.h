// Checks that attention called segment by segment, with noise in place of other segments' pages,
// gives the bits of one call for everything. For any device.
//   T queries   H heads   K KV heads   C head size   P tokens of a page
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "attention/visits.h"
#include "base/random.h"
#include "ops/elementwise.h"
#include "ops/paged_attention.h"

namespace longstride {

struct SegmentsCase {
  SequenceLayout layout;  // the last chunk attends
  std::int64_t H = 4, K = 2, C = 16;
  DType compute = DType::kF32, gradient = DType::kF32;
  bool exact = true;
  std::int64_t window = 0;
  std::size_t least_segments = 2;
};

class SegmentsCheck {
 public:
  SegmentsCheck(Device& device, const SegmentsCase& c) : device_(device), case_(c) {
    chunk_ = c.layout.chunks() - 1;
    T_ = c.layout.chunk_size(chunk_);
    visits_.reserve(c.layout);
    visits_.build(c.layout, chunk_, c.window);
    const std::int64_t pages = c.layout.pages();
    pool_pages_ = pages + 1;
    page_shape_ = {pool_pages_, c.layout.page_tokens, 2, c.K * c.C};
    kv_ = random(c.compute, page_shape_);
    q_ = random(c.compute, {T_, c.H, c.C});
    dout_ = random(c.compute, q_.shape());
    for (std::int64_t i = 0; i < pages; ++i) slots_.push_back(static_cast<std::int32_t>(i));
    noise_ = static_cast<std::int32_t>(pages);
  }

  void run() {
    const Result whole = pass(false), apart = pass(true);
    EXPECT_EQ(whole.out, apart.out);
    EXPECT_EQ(whole.lse, apart.lse);
    EXPECT_EQ(whole.dq, apart.dq);
    EXPECT_EQ(whole.gradients, apart.gradients);
  }

 protected:
  using Bytes = std::vector<std::byte>;
  struct Result {
    Bytes out, lse, dq, gradients;
  };

  View make(DType t, Shape s) {
    memory_.push_back(device_.allocate(s.elements() * size_of(t), "test"));
    return {memory_.back()->data(), t, s};
  }
  View random(DType t, Shape s) {
    Random random(3, static_cast<std::uint64_t>(memory_.size()));
    std::vector<float> values(static_cast<std::size_t>(s.elements()));
    for (float& v : values) v = static_cast<float>(random.normal());
    const View f32 = make(DType::kF32, s);
    device_.copy_from_host(f32.data(), values.data(), f32.bytes());
    if (t == DType::kF32) return f32;
    const View x = make(t, s);
    ops::convert(device_.stream(), {f32, x});
    return x;
  }
  Bytes bytes(const View& v, std::int64_t count) {
    Bytes host(static_cast<std::size_t>(count));
    device_.copy_to_host(host.data(), v.data(), count);
    return host;
  }
  PagesView pages(const View& pool, const std::vector<std::int32_t>& slots) const {
    const std::int64_t page_bytes = pool.bytes() / pool_pages_;
    return {static_cast<std::byte*>(pool.data()),
            slots.data(),
            page_bytes,
            case_.layout.page_tokens,
            case_.K,
            case_.C,
            pool.dtype()};
  }
  std::vector<KeySegment> segments(bool backward) const {
    return cut_keys(case_.layout.keys(chunk_, case_.window),
                    ops::paged_attention_cut(device_.kind(), {shape(), backward, case_.exact}));
  }
  // Calls f(segments, table) for one segment after the other, or once for all.
  template <class F>
  void each(bool apart, bool backward, const F& f) {
    const std::int64_t P = case_.layout.page_tokens;
    const std::vector<KeySegment> all = segments(backward);
    EXPECT_GE(all.size(), case_.least_segments);
    if (!apart) return f(std::span(all), slots_);
    for (const KeySegment& segment : all) {
      std::vector<std::int32_t> table(slots_.size(), noise_);
      for (std::int64_t page = segment.begin / P; page * P < segment.end; ++page)
        table[static_cast<std::size_t>(page)] = slots_[static_cast<std::size_t>(page)];
      f(std::span(&segment, 1), table);
    }
  }
  ops::PagedAttentionShape shape() const {
    return {T_, case_.H, case_.K, case_.C, case_.layout.page_tokens, case_.compute};
  }

  Result pass(bool apart) {
    const View out = make(case_.compute, q_.shape()), dq = make(case_.compute, q_.shape()),
               lse = make(DType::kF32, {case_.H, T_}),
               gradients = make(case_.gradient, page_shape_);
    const View scratch =
        make(DType::kF32, {ops::paged_attention_scratch_elements(device_.stream(), shape())});
    Stream& stream = device_.stream();
    each(apart, false, [&](std::span<const KeySegment> segments, const auto& table) {
      ops::paged_attention_forward(stream, {q_, pages(kv_, table), visits_.view(), out, lse, 0.25f,
                                            scratch, case_.exact, segments});
    });
    each(apart, true, [&](std::span<const KeySegment> segments, const auto& table) {
      ops::paged_attention_backward(
          stream, {q_, out, lse, dout_, pages(kv_, table), pages(gradients, table), visits_.view(),
                   dq, 0.25f, scratch, case_.exact, segments, 17});
    });
    // Without the page that stands for those of other segments.
    return {bytes(out, out.bytes()), bytes(lse, lse.bytes()), bytes(dq, dq.bytes()),
            bytes(gradients, gradients.bytes() / pool_pages_ * (pool_pages_ - 1))};
  }

  Device& device_;
  SegmentsCase case_;
  std::int64_t chunk_ = 0, T_ = 0, pool_pages_ = 0;
  VisitLists visits_;
  Shape page_shape_;
  View kv_, q_, dout_;
  std::vector<std::int32_t> slots_;
  std::int32_t noise_ = 0;
  std::vector<std::unique_ptr<Memory>> memory_;
};

}  // namespace longstride
