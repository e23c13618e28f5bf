// Operations reject inconsistent arguments, and stubs say what is missing.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "ops/elementwise.h"
#include "ops/embedding.h"
#include "ops/linear.h"
#include "ops/loss_head.h"
#include "ops/optimizer.h"
#include "ops/paged_attention.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/swap_axes.h"
#include "ops/swiglu.h"
#include "tensor/token_rows.h"

namespace longstride::ops {
namespace {

class Checks : public testing::Test {
 protected:
  // Each call returns new elements: tensors of one operation must not overlap.
  View floats(Shape s) {
    float* const at = buffer_.data() + used_;
    used_ += static_cast<std::size_t>(s.elements());
    EXPECT_LE(used_, buffer_.size());
    return {at, DType::kF32, s};
  }
  View integers(Shape s) { return {integers_.data(), DType::kI32, s}; }
  Stream stream_{DeviceKind::kCpu};
  std::vector<float> buffer_ = std::vector<float>(4096);
  std::size_t used_ = 0;
  std::vector<std::int32_t> integers_ = std::vector<std::int32_t>(64);
};

TEST_F(Checks, LinearRefusesShapesThatDoNotFit) {
  EXPECT_THROW(
      linear_forward(stream_,
                     {.x_RI = floats({2, 3}), .w_OI = floats({4, 5}), .y_RO = floats({2, 4})}),
      InternalError);
  EXPECT_THROW(linear_forward(stream_, {.x_RI = floats({2, 3}),
                                        .w_OI = View(buffer_.data(), DType::kBF16, {4, 3}),
                                        .y_RO = floats({2, 4})}),
               InternalError);  // no scratch to widen into
  EXPECT_THROW(
      linear_backward(stream_,
                      {.dy_RO = floats({2, 4}), .x_RI = floats({3, 3}), .dw_OI = floats({4, 3})}),
      InternalError);
}

TEST_F(Checks, LinearRefusesTypesItCannotRead) {
  EXPECT_THROW(
      linear_forward(stream_,
                     {.x_RI = integers({2, 3}), .w_OI = floats({4, 3}), .y_RO = floats({2, 4})}),
      InternalError);
}

TEST_F(Checks, SwapAxesRefusesWhatIsNotTheSameRows) {
  EXPECT_THROW(swap_axes(stream_, {.x_ABC = floats({2, 3, 4}), .y_BAC = floats({2, 3, 4})}),
               InternalError);
  EXPECT_THROW(swap_axes(stream_, {.x_ABC = floats({2, 3, 4}), .y_BAC = integers({3, 2, 4})}),
               InternalError);
  EXPECT_THROW(swap_axes(stream_, {.x_ABC = floats({6, 4}), .y_BAC = floats({4, 6})}),
               InternalError);
}

TEST_F(Checks, RmsNormRefusesTooLittleScratch) {
  EXPECT_THROW(rms_norm_backward(stream_, {.dy_RN = floats({2, 3}),
                                           .x_RN = floats({2, 3}),
                                           .w_N = floats({3}),
                                           .dx_RN = floats({2, 3}),
                                           .dw_N = floats({3}),
                                           .scratch = floats({2})}),
               InternalError);
}

TEST_F(Checks, EmbeddingRefusesATokenOutsideTheVocabulary) {
  for (std::int32_t token : {-1, 5}) {
    integers_[1] = token;
    EXPECT_THROW(embedding_forward(stream_, {.tokens_T = integers({3}),
                                             .table_VD = floats({5, 2}),
                                             .y_TD = floats({3, 2})}),
                 InternalError);
  }
}

TEST_F(Checks, EmbeddingRefusesAGradientOutsideTheVocabularyOrTheRows) {
  const auto backward = [&](TokenGroup group) {
    const std::int32_t values[] = {group.token, group.begin, group.count, group.first};
    std::ranges::copy(values, integers_.begin());
    embedding_backward(stream_, {.groups_G4 = integers({1, 4}),
                                 .rows_T = integers({3}),
                                 .dy_TD = floats({3, 2}),
                                 .dtable_VD = floats({5, 2})});
  };
  for (const TokenGroup bad :
       {TokenGroup{-1, 0, 1, 0}, TokenGroup{5, 0, 1, 0}, TokenGroup{0, 2, 2, 0},
        TokenGroup{0, -1, 1, 0}, TokenGroup{0, 0, -1, 0}})
    EXPECT_THROW(backward(bad), InternalError);
  backward({2, 0, 0, 0});
}

TEST_F(Checks, LossHeadRefusesATargetOutsideTheVocabulary) {
  LossHead args{.x_TD = floats({2, 3}),
                .w_VD = floats({5, 3}),
                .targets_T = integers({2}),
                .losses_T = floats({2})};
  args.block_rows = 2;
  args.scratch = floats({cpu::loss_head_scratch_elements({2, args.w_VD})});
  loss_head(stream_, args);
  integers_[0] = 5;
  EXPECT_THROW(loss_head(stream_, args), InternalError);
}

TEST_F(Checks, AppendRefusesAPageThatDoesNotExist) {
  const std::int32_t slots[2] = {0, -1};
  AppendKv args{.k_TKC = floats({3, 1, 2}),
                .v_TKC = floats({3, 1, 2}),
                .cos_TN = floats({3, 1}),
                .sin_TN = floats({3, 1})};
  std::vector<float> pool(8);
  args.pages = {.base = reinterpret_cast<std::byte*>(pool.data()),
                .slots = slots,
                .page_bytes = 32,
                .page_tokens = 2,
                .kv_heads = 1,
                .head_size = 2};
  EXPECT_THROW(append_kv(stream_, args), InternalError);
}

// Checks run before the backend, whichever it is, and whether or not this build has it.
TEST_F(Checks, StandBeforeEveryBackend) {
  for (const DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kCuda}) {
    Stream stream(kind);
    EXPECT_THROW(add(stream, {.a = floats({2}), .b = floats({3}), .y = floats({2})}),
                 InternalError);
    EXPECT_THROW(convert(stream, {.x = integers({2}), .y = floats({2})}), InternalError);
    EXPECT_THROW(zero(stream, {}), InternalError);
    EXPECT_THROW(linear_forward(stream, {}), InternalError);
    EXPECT_THROW(linear_backward(stream, {}), InternalError);
    EXPECT_THROW(rms_norm_forward(stream, {}), InternalError);
    EXPECT_THROW(rms_norm_backward(stream, {}), InternalError);
    EXPECT_THROW(rope_tables(stream, {}), InternalError);
    EXPECT_THROW(rope(stream, {}), InternalError);
    EXPECT_THROW(append_kv(stream, {}), InternalError);
    EXPECT_THROW(take_kv_gradient(stream, {}), InternalError);
    EXPECT_THROW(swiglu_forward(stream, {.gate_TF = floats({1, 2}), .up_TF = floats({1, 3})}),
                 InternalError);
    EXPECT_THROW(swiglu_backward(stream, {.dy_TF = floats({1, 2}), .gate_TF = floats({1, 3})}),
                 InternalError);
    EXPECT_THROW(embedding_forward(stream, {}), InternalError);
    EXPECT_THROW(embedding_backward(stream, {.dtable_VD = floats({2, 3})}), InternalError);
    EXPECT_THROW(loss_head(stream, {}), InternalError);
    EXPECT_THROW(paged_attention_forward(stream, {}), InternalError);
    EXPECT_THROW(paged_attention_backward(stream, {}), InternalError);
    EXPECT_THROW(sum_of_squares(stream, {.g = floats({2}), .sum_1 = floats({2})}), InternalError);
    EXPECT_THROW(adamw(stream, {.g = floats({2})}), InternalError);
  }
}

TEST_F(Checks, AStreamOfShapesRunsNothing) {
  Stream shapes(DeviceKind::kShapes);
  linear_forward(shapes, {});
  EXPECT_THROW(linear_forward(stream_, {}), InternalError);
}

TEST(LossHeadBlocks, KeepLogitsSmall) {
  EXPECT_EQ(cpu::loss_head_block_rows(32768), 128);
  EXPECT_EQ(cpu::loss_head_block_rows(1), 1024);
  EXPECT_EQ(cpu::loss_head_block_rows(10000000), 128);
}

}  // namespace
}  // namespace longstride::ops
