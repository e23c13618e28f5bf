// Attention that gets coded pages (CodedView), against the same in three steps: copies are widened,
// attention runs over wide pages, and the sums are added to the codes. The bits must be equal.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "device/device.h"
#include "ops/page_codes.h"
#include "ops/paged_attention.h"
#include "tensor/page_codes.h"

namespace longstride::ops {

struct CodedAttention {
  std::int64_t query_pages, H, K, C, P;
  std::int64_t earlier;                   // pages before the chunk
  std::int64_t selected;                  // by each query page
  DType compute, kv_code, gradient_code;  // codes may be wide: not coded
  bool equal_lists = true;
  std::int64_t hot = 0;  // so many visited pages have wide gradients, though the others are coded

  std::int64_t tokens() const { return query_pages * P; }
  std::int64_t pages() const { return earlier + query_pages; }
};

class CodedAttentionCase {
 public:
  CodedAttentionCase(Device& device, const CodedAttention& c) : device_(device), c_(c) {
    make_lists();
    const std::int64_t T = c.tokens();
    q_ = random(c.compute, {T, c.H, c.C}), dout_ = random(c.compute, {T, c.H, c.C});
    // Coded pages lie in reverse order, with a slot between them; wide ones that are visited in
    // order, then the others.
    for (std::int64_t p = 0; p < c.pages(); ++p)
      slots_.push_back(static_cast<std::int32_t>(2 * (c.pages() - 1 - p)));
    for (std::size_t i = 0; i < visited_.size(); ++i)
      (i % 3 == 1 && std::ssize(hot_) < c.hot ? hot_ : cold_).push_back(visited_[i]);
    wide_slots_ = slots_in_order({});
    sum_slots_ = slots_in_order(hot_);
    const DType kv_code = is_page_code(c.kv_code) ? c.kv_code : DType::kI8,
                gradient_code = is_page_code(c.gradient_code) ? c.gradient_code : DType::kI8;
    kv_codes_ = pool(kv_code, 2 * c.pages(), slots_, true);
    gradient_codes_ = pool(gradient_code, 2 * c.pages(), slots_);
    first_kv_ = pool(c.compute, c.pages(), wide_slots_);
    fill(first_kv_, c.pages());
    narrow_pages(stream(), {.wide = first_kv_, .codes = kv_codes_, .end_token = end()});
    PagesView some = pool(DType::kF32, c.pages(), wide_slots_);
    fill(some, c.pages());
    std::vector<std::int32_t> every(static_cast<std::size_t>(c.pages()));
    std::iota(every.begin(), every.end(), 0);
    add_to_coded_pages(stream(), {.sums = some,
                                  .codes = gradient_codes_,
                                  .pages = every,
                                  .end_token = end(),
                                  .rounding = 7});
    std::vector<std::int32_t> own(static_cast<std::size_t>(c.query_pages));
    std::iota(own.begin(), own.end(), static_cast<std::int32_t>(c.earlier));
    // Own pages are wide, as rounded; without codes, the others too.
    widen_pages(stream(), {.codes = kv_codes_,
                           .wide = first_kv_,
                           .pages = is_page_code(c.kv_code) ? own : every,
                           .end_token = end()});
  }

  struct Results {
    std::vector<std::byte> out, lse, dq, gradient_codes, wide_gradients;  // of own and hot pages
    bool operator==(const Results&) const = default;
  };

  Results run(bool by_copies) {
    const PagesView kv = copy_of(first_kv_, c_.pages(), wide_slots_),
                    codes = copy_of(gradient_codes_, 2 * c_.pages(), slots_),
                    sums = pool(wide_gradients(), c_.pages(), sum_slots_);
    for (const std::int32_t page : hot_)  // there are sums already
      fill_bytes(sums.plane(page, 0), sums.dtype, c_.P * sums.token_stride(),
                 1000 + static_cast<std::uint64_t>(page));
    const std::int64_t T = c_.tokens();
    const View out = make(c_.compute, {T, c_.H, c_.C}), lse = make(DType::kF32, {c_.H, T}),
               dq = make(c_.compute, {T, c_.H, c_.C});
    const View scratch = make(DType::kF32, {scratch_elements()});
    const std::vector<KeySegment> segments = {{.begin = 0, .end = end()}};
    const bool codes_kv = is_page_code(c_.kv_code), codes_dkv = is_page_code(c_.gradient_code);
    CodedView view{.kv_pages = visited_, .gradient_pages = cold_};
    if (codes_kv) view.kv = kv_codes_;
    if (by_copies && codes_kv)
      widen_pages(stream(),
                  {.codes = kv_codes_, .wide = kv, .pages = visited_, .end_token = begin()});
    PagedAttentionForward forward{.q_THC = q_,
                                  .kv = kv,
                                  .visits = visits(),
                                  .out_THC = out,
                                  .lse_HT = lse,
                                  .scale = 0.5f,
                                  .scratch = scratch,
                                  .segments = segments};
    if (!by_copies) forward.codes = view;
    paged_attention_forward(stream(), forward);
    PagedAttentionBackward backward{.q_THC = q_,
                                    .out_THC = out,
                                    .lse_HT = lse,
                                    .dout_THC = dout_,
                                    .kv = kv,
                                    .kv_gradient = sums,
                                    .visits = visits(),
                                    .dq_THC = dq,
                                    .scale = 0.5f,
                                    .scratch = scratch,
                                    .segments = segments,
                                    .rounding = 99};
    if (codes_dkv) view.gradients = codes;
    if (!by_copies) backward.codes = view;
    paged_attention_backward(stream(), backward);
    if (by_copies && codes_dkv)
      add_to_coded_pages(
          stream(),
          {.sums = sums, .codes = codes, .pages = cold_, .end_token = begin(), .rounding = 99});
    std::vector<std::byte> wide =
        bytes(sums.plane(c_.earlier, 0), c_.query_pages * sums.page_bytes);
    for (const std::int32_t page : hot_) {
      const std::vector<std::byte> one = bytes(sums.plane(page, 0), sums.page_bytes);
      wide.insert(wide.end(), one.begin(), one.end());
    }
    return {bytes(out.data(), out.bytes()), bytes(lse.data(), lse.bytes()),
            bytes(dq.data(), dq.bytes()), bytes(codes.base, 2 * c_.pages() * codes.page_bytes),
            std::move(wide)};
  }

  // Of gradient codes as they were before.
  std::vector<std::byte> codes_before() {
    return bytes(gradient_codes_.base, 2 * c_.pages() * gradient_codes_.page_bytes);
  }

 private:
  Stream& stream() { return device_.stream(); }
  std::int64_t begin() const { return c_.earlier * c_.P; }
  std::int64_t end() const { return c_.pages() * c_.P; }
  DType wide_gradients() const {
    return is_page_code(c_.gradient_code) ? DType::kF32 : c_.gradient_code;
  }

  View make(DType t, const Shape& s) {
    memory_.push_back(device_.allocate(s.elements() * size_of(t), "test"));
    device_.zero(memory_.back()->data(), s.elements() * size_of(t));
    return {memory_.back()->data(), t, s};
  }
  View random(DType t, const Shape& s) {
    const View view = make(t, s);
    fill_bytes(view.data(), t, s.elements(), memory_.size());
    return view;
  }
  void fill_bytes(void* to, DType t, std::int64_t elements, std::uint64_t stream) {
    Random random(3, stream);
    std::vector<std::byte> host(static_cast<std::size_t>(elements * size_of(t)));
    for (std::int64_t i = 0; i < elements; ++i) {
      const auto x = static_cast<float>(random.normal());
      if (t == DType::kF32)
        reinterpret_cast<float*>(host.data())[i] = x;
      else
        reinterpret_cast<bf16*>(host.data())[i] = to_bf16(x);
    }
    device_.copy_from_host(to, host.data(), std::ssize(host));
  }
  PagesView pool(DType t, std::int64_t slots, const std::vector<std::int32_t>& table,
                 bool centred = false) {
    const std::int64_t page = page_bytes_of(t, c_.P, c_.K, c_.C, centred);
    memory_.push_back(device_.allocate(slots * page, "test"));
    device_.zero(memory_.back()->data(), slots * page);
    return {memory_.back()->data(), table.data(), page, c_.P, c_.K, c_.C, t, centred};
  }
  void fill(const PagesView& wide, std::int64_t pages) {
    fill_bytes(wide.base, wide.dtype, pages * c_.P * wide.token_stride(), memory_.size());
  }
  PagesView copy_of(const PagesView& from, std::int64_t slots,
                    const std::vector<std::int32_t>& table) {
    const PagesView to = pool(from.dtype, slots, table);
    const std::vector<std::byte> host = bytes(from.base, slots * from.page_bytes);
    device_.copy_from_host(to.base, host.data(), std::ssize(host));
    return to;
  }
  std::vector<std::byte> bytes(const void* from, std::int64_t count) {
    std::vector<std::byte> host(static_cast<std::size_t>(count));
    device_.stream().synchronize();
    device_.copy_to_host(host.data(), from, count);
    return host;
  }

  // Consecutive ones for visited pages, but for some that come with the others.
  std::vector<std::int32_t> slots_in_order(const std::vector<std::int32_t>& later) const {
    std::vector<std::int32_t> slots(static_cast<std::size_t>(c_.pages()), -1);
    std::int32_t next = 0;
    for (const std::int32_t page : all_visited_)
      if (!std::ranges::binary_search(later, page)) slots[static_cast<std::size_t>(page)] = next++;
    for (std::int32_t& slot : slots)
      if (slot < 0) slot = next++;
    return slots;
  }

  void make_lists() {
    std::vector<std::set<std::int64_t>> back(static_cast<std::size_t>(c_.pages()));
    LS_CHECK(c_.earlier % 13 != 0 && c_.selected <= c_.earlier, "{} of {} pages", c_.selected,
             c_.earlier);
    for (std::int64_t q = 0; q < c_.query_pages; ++q) {
      std::set<std::int64_t> list;
      const std::int64_t count = c_.selected - (!c_.equal_lists && q == 1 ? 1 : 0);
      for (std::int64_t i = 0; std::ssize(list) < count; ++i)
        list.insert((7 * q + 13 * i) % c_.earlier);  // all of them, if 13 is no factor
      for (std::int64_t p = c_.earlier; p <= c_.earlier + q; ++p) list.insert(p);
      for (const std::int64_t page : list) {
        kv_pages_.push_back(static_cast<std::int32_t>(page));
        back[static_cast<std::size_t>(page)].insert(q);
      }
      offsets_.push_back(std::ssize(kv_pages_));
    }
    for (std::int64_t page = 0; page < c_.pages(); ++page) {
      const auto& queries = back[static_cast<std::size_t>(page)];
      if (queries.empty()) continue;
      all_visited_.push_back(static_cast<std::int32_t>(page));
      if (page < c_.earlier) visited_.push_back(static_cast<std::int32_t>(page));
      for (const std::int64_t q : queries) back_queries_.push_back(static_cast<std::int32_t>(q));
      back_offsets_.push_back(std::ssize(back_queries_));
    }
    first_visible_.assign(static_cast<std::size_t>(c_.tokens()), 0);
  }
  VisitsView visits() const {
    return {.kind = AttentionKind::kSparse,
            .chunk_begin = begin(),
            .query_pages = c_.query_pages,
            .offsets = offsets_.data(),
            .kv_pages = kv_pages_.data(),
            .first_visible = first_visible_.data(),
            .visited_pages = std::ssize(all_visited_),
            .visited = all_visited_.data(),
            .back_offsets = back_offsets_.data(),
            .back_queries = back_queries_.data()};
  }
  std::int64_t scratch_elements() {
    return paged_attention_scratch_elements(stream(), {.tokens = c_.tokens(),
                                                       .query_heads = c_.H,
                                                       .kv_heads = c_.K,
                                                       .head_size = c_.C,
                                                       .page_tokens = c_.P,
                                                       .compute = c_.compute,
                                                       .selected_pages = c_.selected,
                                                       .union_pages = std::ssize(visited_)});
  }

  Device& device_;
  CodedAttention c_;
  std::vector<std::unique_ptr<Memory>> memory_;
  std::vector<std::int32_t> slots_, wide_slots_, sum_slots_, kv_pages_, all_visited_, visited_,
      back_queries_;
  std::vector<std::int32_t> hot_, cold_;  // of visited_
  std::vector<std::int64_t> offsets_ = {0}, back_offsets_ = {0}, first_visible_;
  View q_, dout_;
  PagesView kv_codes_, gradient_codes_, first_kv_;
};

inline void expect_bits_of_wide_copies(Device& device, const CodedAttention& c) {
  CodedAttentionCase test(device, c);
  const auto by_codes = test.run(false), by_copies = test.run(true);
  EXPECT_TRUE(by_codes.out == by_copies.out && by_codes.lse == by_copies.lse) << "forward";
  EXPECT_TRUE(by_codes.dq == by_copies.dq) << "dq";
  EXPECT_TRUE(by_codes.gradient_codes == by_copies.gradient_codes) << "gradient codes";
  EXPECT_TRUE(by_codes.wide_gradients == by_copies.wide_gradients) << "own and hot gradients";
  EXPECT_EQ(by_codes.gradient_codes != test.codes_before(), is_page_code(c.gradient_code));
}

}  // namespace longstride::ops
