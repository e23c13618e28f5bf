// Compares gradient pages in BF16 with F32 ones of the same initial content: the stored value must
// be the F32 sum, rounded by the call's key, the token and the element alone, whatever the pages'
// slots. Bit for bit, for any device.
#pragma once

#include "tensor/stochastic_round.h"
#include "tests/attention/segments_check.h"

namespace longstride {

class RoundingCheck : public SegmentsCheck {
 public:
  RoundingCheck(Device& device, const SegmentsCase& c) : SegmentsCheck(device, c) {
    Random random(5);
    held_.resize(static_cast<std::size_t>(c.layout.pages() * page_elements()));
    for (float& x : held_) x = to_float(to_bf16(static_cast<float>(random.normal())));
    out_ = make(c.compute, q_.shape());
    lse_ = make(DType::kF32, {c.H, T_});
    dq_ = make(c.compute, q_.shape());
    scratch_ = make(DType::kF32, {ops::paged_attention_scratch_elements(device.stream(), shape())});
    const std::vector<KeySegment> all = segments(false);
    ops::paged_attention_forward(device.stream(), {q_, pages(kv_, slots_), visits_.view(), out_,
                                                   lse_, 0.25f, scratch_, c.exact, all});
  }

  void run() {
    constexpr std::uint64_t kKey = 77;
    const std::vector<std::int32_t> reverse(slots_.rbegin(), slots_.rend());
    const std::vector<float> sums = after<float>(kKey, slots_), rounded = after<bf16>(kKey, slots_),
                             elsewhere = after<bf16>(kKey, reverse),
                             other_key = after<bf16>(kKey + 1, slots_);
    const std::int64_t row = 2 * case_.K * case_.C;
    std::int64_t up = 0, down = 0, differ = 0;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const auto token = static_cast<std::int64_t>(i) / row;
      const auto element = static_cast<std::uint32_t>(static_cast<std::int64_t>(i) % row);
      const float want = to_float(bf16{stochastic_bf16(std::bit_cast<std::uint32_t>(sums[i]),
                                                       RowRounding(kKey, token).bits_of(element))});
      ASSERT_EQ(rounded[i], want) << "token " << token << " element " << element << ": " << sums[i];
      ASSERT_EQ(elsewhere[i], want) << "token " << token << " element " << element;
      up += want > sums[i] ? 1 : 0;
      down += want < sums[i] ? 1 : 0;
      differ += other_key[i] != want ? 1 : 0;
    }
    EXPECT_GT(up, 100);
    EXPECT_GT(down, 100);
    EXPECT_GT(differ, 100);
  }

  // The content of gradient pages of type G after a call, in the order of tokens.
  template <class G>
  std::vector<float> after(std::uint64_t key, const std::vector<std::int32_t>& slots) {
    const View pool = make(dtype_of<G>(), page_shape_);
    std::vector<G> host(static_cast<std::size_t>(pool.elements()));
    const auto each = [&](const auto& f) {
      for (std::size_t i = 0; i < held_.size(); ++i) {
        const auto logical = static_cast<std::int64_t>(i);
        const std::int64_t slot = slots[static_cast<std::size_t>(logical / page_elements())];
        f(i, host[static_cast<std::size_t>(slot * page_elements() + logical % page_elements())]);
      }
    };
    each([&](std::size_t i, G& x) {
      if constexpr (std::is_same_v<G, float>)
        x = held_[i];
      else
        x = to_bf16(held_[i]);
    });
    device_.copy_from_host(pool.data(), host.data(), pool.bytes());
    const std::vector<KeySegment> all = segments(true);
    ops::paged_attention_backward(device_.stream(),
                                  {q_, out_, lse_, dout_, pages(kv_, slots_), pages(pool, slots),
                                   visits_.view(), dq_, 0.25f, scratch_, case_.exact, all, key});
    device_.copy_to_host(host.data(), pool.data(), pool.bytes());
    std::vector<float> values(held_.size());
    each([&](std::size_t i, G& x) {
      if constexpr (std::is_same_v<G, float>)
        values[i] = x;
      else
        values[i] = to_float(x);
    });
    return values;
  }
  const std::vector<std::int32_t>& in_order() const { return slots_; }

 private:
  std::int64_t page_elements() const { return case_.layout.page_tokens * 2 * case_.K * case_.C; }

  std::vector<float> held_;
  View out_, lse_, dq_, scratch_;
};

}  // namespace longstride
