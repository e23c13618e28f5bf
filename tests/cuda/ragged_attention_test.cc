// Chunks that end anywhere: cuDNN computes them padded to one of a few lengths. The results equal
// those of the same queries and keys in a full chunk, and the padding does not affect them.
#include <cstring>
#include <limits>

#include "attention/visits.h"
#include "ops/cuda/library_context.h"
#include "ops/paged_attention.h"
#include "tests/cuda/gpu_fixture.h"

namespace longstride {
namespace {

constexpr std::int64_t kChunk = 1024, kPage = 128, kHeads = 4, kKvHeads = 2, kSize = 64,
                       kRow = 2 * kKvHeads * kSize;

class RaggedAttention : public OnGpu {
 protected:
  // Whatever ran on this stream before.
  void SetUp() override { ops::cuda::libraries_of(stream()).query_lengths().expect(kChunk, 0); }

  using Bytes = std::vector<std::byte>;
  struct Inputs {
    std::vector<float> q, dout, kv;  // of the chunk's queries; of all keys
  };
  struct Results {
    Bytes out, lse, dq, gradients;
  };

  static std::vector<float> noise(std::int64_t elements, std::uint64_t seed) {
    Random random(5, seed);
    std::vector<float> values(static_cast<std::size_t>(elements));
    for (float& v : values) v = static_cast<float>(random.normal());
    return values;
  }
  View upload(const std::vector<float>& values, Shape s) {
    const View f32 = make(DType::kF32, s), x = make(DType::kBF16, s);
    gpu().copy_from_host(f32.data(), values.data(), f32.bytes());
    ops::convert(stream(), {f32, x});
    return x;
  }
  // The last chunk of a sequence, `T` queries after `begin` keys.
  Results run(std::int64_t begin, std::int64_t T, const Inputs& in, bool exact) {
    const SequenceLayout layout{begin + T, kChunk, kPage, {0}};
    VisitLists visits;
    visits.reserve(layout);
    visits.build(layout, layout.chunks() - 1, 0);
    const std::int64_t pages = layout.pages();
    std::vector<std::int32_t> slots;
    for (std::int64_t i = 0; i < pages; ++i) slots.push_back(static_cast<std::int32_t>(i));
    const View kv = upload(in.kv, {pages, kPage, 2, kKvHeads * kSize}),
               q = upload(in.q, {T, kHeads, kSize}), dout = upload(in.dout, {T, kHeads, kSize}),
               gradients = make(DType::kF32, kv.shape()), out = make(DType::kBF16, q.shape()),
               dq = make(DType::kBF16, q.shape()), lse = make(DType::kF32, {kHeads, T});
    const ops::PagedAttentionShape shape{T, kHeads, kKvHeads, kSize, kPage, DType::kBF16};
    const View scratch =
        make(DType::kF32, {ops::paged_attention_scratch_elements(stream(), shape)});
    const std::vector<float> nan(static_cast<std::size_t>(scratch.elements()),
                                 std::numeric_limits<float>::quiet_NaN());
    gpu().copy_from_host(scratch.data(), nan.data(), scratch.bytes());
    const auto view = [&](const View& pool) {
      return PagesView{static_cast<std::byte*>(pool.data()),
                       slots.data(),
                       pool.bytes() / pages,
                       kPage,
                       kKvHeads,
                       kSize,
                       pool.dtype()};
    };
    const auto segments = [&](bool backward) {
      return cut_keys(layout.keys(layout.chunks() - 1, 0),
                      ops::paged_attention_cut(gpu().kind(), {shape, backward, exact}));
    };
    const std::vector<KeySegment> forward = segments(false), backward = segments(true);
    ops::paged_attention_forward(
        stream(), {q, view(kv), visits.view(), out, lse, 0.125f, scratch, exact, forward});
    ops::paged_attention_backward(
        stream(), {q, out, lse, dout, view(kv), view(gradients), visits.view(), dq, 0.125f, scratch,
                   exact, backward, 1});
    return {bytes(out), bytes(lse), bytes(dq), bytes(gradients)};
  }
  static Bytes first(const Bytes& of, std::int64_t bytes) {
    return {of.begin(), of.begin() + static_cast<std::ptrdiff_t>(bytes)};
  }
  static std::int64_t plans_made() {
    return ops::cuda::libraries_of(stream()).attention(stream()).plans_made();
  }
};

TEST_F(RaggedAttention, IsThatOfAFullChunkWithoutTheRest) {
  for (const std::int64_t begin : {std::int64_t{0}, kChunk}) {
    const Inputs all{noise(kChunk * kHeads * kSize, 1), noise(kChunk * kHeads * kSize, 2),
                     noise((begin + kChunk) * kRow, 3)};
    for (const std::int64_t T : {300, 700, 1000, 1023}) {
      const std::int64_t row = kHeads * kSize, pages = (begin + T + kPage - 1) / kPage;
      Inputs full = all, ragged = all;
      // Queries past the end give no gradient in the full chunk; in the ragged one they are absent,
      // and so are their keys.
      std::fill(full.dout.begin() + T * row, full.dout.end(), 0.0f);
      ragged.q.resize(static_cast<std::size_t>(T * row));
      ragged.dout.resize(static_cast<std::size_t>(T * row));
      ragged.kv.resize(static_cast<std::size_t>(pages * kPage * kRow));
      std::fill(ragged.kv.begin() + (begin + T) * kRow, ragged.kv.end(),
                std::numeric_limits<float>::quiet_NaN());
      const Results want = run(begin, kChunk, full, true), got = run(begin, T, ragged, true);
      EXPECT_TRUE(got.out == first(want.out, T * row * 2)) << begin << " + " << T;
      for (std::int64_t head = 0; head < kHeads; ++head)
        EXPECT_EQ(std::memcmp(got.lse.data() + head * T * 4, want.lse.data() + head * kChunk * 4,
                              static_cast<std::size_t>(T * 4)),
                  0)
            << begin << " + " << T << ", head " << head;
      EXPECT_TRUE(got.dq == first(want.dq, T * row * 2)) << begin << " + " << T;
      const std::int64_t bytes = (begin + T) * kRow * 4;
      EXPECT_TRUE(first(got.gradients, bytes) == first(want.gradients, bytes))
          << begin << " + " << T;
    }
  }
}

TEST_F(RaggedAttention, ManyLengthsShareFewPlans) {
  if (ops::cuda::cudnn_version() == "none") GTEST_SKIP() << "no cuDNN";
  const Inputs all{noise(kChunk * kHeads * kSize, 1), noise(kChunk * kHeads * kSize, 2),
                   noise(2 * kChunk * kRow, 3)};
  const std::int64_t before = plans_made();
  for (std::int64_t T = 1; T < kChunk; T += 57) {
    Inputs in = all;
    in.q.resize(static_cast<std::size_t>(T * kHeads * kSize));
    in.dout = in.q;
    in.kv.resize(static_cast<std::size_t>((kChunk + T + kPage - 1) / kPage * kPage * kRow));
    run(kChunk, T, in, false);
  }
  // Padded to 256 or to 1024: over the keys before the chunk and its own together, and backward
  // over each of them.
  EXPECT_LE(plans_made() - before, 6);
}

}  // namespace
}  // namespace longstride
