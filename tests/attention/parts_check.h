// Attention called part by part, with nothing but noise where the pages of other parts are, against
// one call for everything: the same bits. For any device.
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

struct PartsCase {
  SequenceLayout layout;  // the last chunk attends
  std::int64_t H = 4, K = 2, C = 16;
  DType compute = DType::kF32, gradient = DType::kF32;
  bool exact = true;
  std::int64_t window = 0;
  std::size_t least_parts = 2;
};

class PartsCheck {
 public:
  PartsCheck(Device& device, const PartsCase& c) : device_(device), case_(c) {
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
    const Result whole = pass(false), parts = pass(true);
    EXPECT_EQ(whole.out, parts.out);
    EXPECT_EQ(whole.lse, parts.lse);
    EXPECT_EQ(whole.dq, parts.dq);
    EXPECT_EQ(whole.gradients, parts.gradients);
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
  // f(part, table) for the parts, or once for everything.
  template <class F>
  void each(bool in_parts, bool backward, const F& f) {
    if (!in_parts) return f(KeyPart{}, slots_);
    KeyCut cut = ops::paged_attention_cut(device_.kind(), {shape(), backward, case_.exact});
    const std::int64_t begin = case_.layout.chunk_begin(chunk_), P = case_.layout.page_tokens,
                       first = case_.layout.first_visible(begin, 0);
    if (case_.layout.tokens_before_documents(chunk_) < T_)
      cut = cut_with_documents(cut, begin + T_ - first);
    std::size_t count = 0;
    for_key_parts(first, begin, T_, P, cut, [&](const KeyPart& part) {
      ++count;
      std::vector<std::int32_t> table(slots_.size(), noise_);
      for (std::int64_t page = part.begin / P; page * P < part.end; ++page)
        table[static_cast<std::size_t>(page)] = slots_[static_cast<std::size_t>(page)];
      f(part, table);
    });
    EXPECT_GE(count, case_.least_parts);
  }
  ops::PagedAttentionShape shape() const {
    return {T_, case_.H, case_.K, case_.C, case_.layout.page_tokens, case_.compute};
  }

  Result pass(bool in_parts) {
    const View out = make(case_.compute, q_.shape()), dq = make(case_.compute, q_.shape()),
               lse = make(DType::kF32, {case_.H, T_}),
               gradients = make(case_.gradient, page_shape_);
    const View scratch =
        make(DType::kF32, {ops::paged_attention_scratch_elements(device_.stream(), shape())});
    Stream& stream = device_.stream();
    each(in_parts, false, [&](const KeyPart& part, const std::vector<std::int32_t>& table) {
      ops::paged_attention_forward(stream, {q_, pages(kv_, table), visits_.view(), out, lse, 0.25f,
                                            scratch, case_.exact, part});
    });
    each(in_parts, true, [&](const KeyPart& part, const std::vector<std::int32_t>& table) {
      ops::paged_attention_backward(
          stream, {q_, out, lse, dout_, pages(kv_, table), pages(gradients, table), visits_.view(),
                   dq, 0.25f, scratch, case_.exact, part, 17});
    });
    // Without the page that stands for those of other parts.
    return {bytes(out, out.bytes()), bytes(lse, lse.bytes()), bytes(dq, dq.bytes()),
            bytes(gradients, gradients.bytes() / pool_pages_ * (pool_pages_ - 1))};
  }

  Device& device_;
  PartsCase case_;
  std::int64_t chunk_ = 0, T_ = 0, pool_pages_ = 0;
  VisitLists visits_;
  Shape page_shape_;
  View kv_, q_, dout_;
  std::vector<std::int32_t> slots_;
  std::int32_t noise_ = 0;
  std::vector<std::unique_ptr<Memory>> memory_;
};

}  // namespace longstride
