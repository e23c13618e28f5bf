#include "train/chunk_runner.h"

#include <algorithm>
#include <cmath>

#include "model/head.h"
#include "ops/embedding.h"
#include "ops/rope.h"
#include "tensor/stochastic_round.h"

namespace longstride {

void ChunkRunner::reserve(const SequenceLayout& layout) {
  visits_.reserve(layout);
  const auto chunk = static_cast<std::size_t>(std::min(layout.tokens, layout.chunk_tokens));
  positions_.reserve(chunk);
  token_rows_.reserve(static_cast<std::int64_t>(chunk));
  losses_.resize(kUnsettled * chunk);
  correct_.resize(losses_.size());
  unsettled_.reserve(kUnsettled);
}

void ChunkRunner::begin_sequence(const SequenceLayout& layout, const SequenceInput& input,
                                 float scale) {
  layout_ = layout;
  input_ = input;
  scale_ = scale;
  visits_chunk_ = visits_window_ = -1;
  unsettled_.clear();
  sums_ = {};
  if (recording_losses_) all_losses_.assign(static_cast<std::size_t>(layout.tokens), 0.0f);
}

void ChunkRunner::run(const Task& task) {
  switch (task.kind) {
    case TaskKind::kEmbed:
      return embed(task);
    case TaskKind::kLayerForward:
      return layer_forward_task(task);
    case TaskKind::kHead:
      return head(task);
    case TaskKind::kLayerBackward:
      return layer_backward_task(task);
    case TaskKind::kEmbedBackward:
      return embed_backward(task);
  }
}

void ChunkRunner::drop() {
  context_.device.stream().synchronize();  // losses under way land before their buffers are reused
  unsettled_.clear();
  chunks_.clear();
}

ChunkRunner::Chunk& ChunkRunner::chunk_of(const Task& task) {
  const auto found = std::find_if(chunks_.begin(), chunks_.end(),
                                  [&](const Chunk& c) { return c.index == task.chunk; });
  LS_CHECK(found != chunks_.end(), "chunk {} is not under way", task.chunk);
  return *found;
}

void ChunkRunner::end_chunk(Chunk& chunk) {
  std::swap(chunk, chunks_.back());
  chunks_.pop_back();
}

ChunkContext ChunkRunner::context_of(const Chunk& chunk) const {
  return {context_.device,
          workspace_,
          context_.config,
          layout_.chunk_begin(chunk.index),
          layout_.chunk_size(chunk.index),
          chunk.cos_TN.view(),
          chunk.sin_TN.view(),
          compute_,
          context_.numerics.determinism == "exact",
          context_.rebuild_feed_forward};
}

LayerPass ChunkRunner::pass_of(const ChunkContext& ctx, const Task& task) {
  const LayerParameters& weights = context_.weights.layers[static_cast<std::size_t>(task.layer)];
  if (store_ == nullptr) {
    PagesView shapes;
    shapes.page_tokens = layout_.page_tokens;
    return {ctx, weights, shapes, {}};
  }
  // Layers of one kind share a chunk's lists.
  const std::int64_t window = context_.config.windows[static_cast<std::size_t>(task.layer)];
  if (visits_chunk_ != task.chunk || visits_window_ != window) {
    visits_.build(layout_, task.chunk, window);
    visits_chunk_ = task.chunk;
    visits_window_ = window;
  }
  return {ctx,
          weights,
          store_->kv(task.layer),
          visits_.view(),
          {store_, &task},
          mixed(mixed(input_.rounding, task.layer), task.chunk)};
}

void ChunkRunner::embed(const Task& task) {
  Chunk chunk;
  chunk.index = task.chunk;
  const std::int64_t begin = layout_.chunk_begin(task.chunk), T = layout_.chunk_size(task.chunk),
                     N = context_.config.head_size / 2;
  chunk.cos_TN = workspace_.take("cos", DType::kF32, {T, N});
  chunk.sin_TN = workspace_.take("sin", DType::kF32, {T, N});
  chunk.stream_TD = workspace_.take("residual", compute_, {T, context_.config.hidden_size});
  const Lease positions_T = workspace_.take("positions", DType::kI64, {T});
  const Lease tokens_T = workspace_.take("tokens", DType::kI32, {T});
  if (store_ != nullptr) {
    positions_.clear();
    for (std::int64_t t = begin; t < begin + T; ++t)
      positions_.push_back(input_.first_position + t - layout_.document_start(t));
    context_.device.copy_from_host(positions_T.view().data(), positions_.data(),
                                   T * size_of(DType::kI64));
    context_.device.copy_from_host(tokens_T.view().data(), input_.tokens.data() + begin,
                                   T * size_of(DType::kI32));
  }
  Stream& stream = context_.device.stream();
  ops::rope_tables(stream, {positions_T, context_.frequencies, chunk.cos_TN, chunk.sin_TN,
                            context_.attention_factor});
  ops::embedding_forward(stream, {tokens_T, context_.weights.embedding, chunk.stream_TD});
  chunk.layers.resize(static_cast<std::size_t>(context_.config.layers));
  chunks_.push_back(std::move(chunk));
}

void ChunkRunner::layer_forward_task(const Task& task) {
  Chunk& chunk = chunk_of(task);
  const ChunkContext ctx = context_of(chunk);
  if (store_ != nullptr) store_->enter(task);
  const LayerPass pass = pass_of(ctx, task);
  if (task.append) layer_store_kv(pass, chunk.stream_TD);
  if (!task.only_kv) {
    KeptLayer* kept = task.keep ? &chunk.layers[static_cast<std::size_t>(task.layer)] : nullptr;
    chunk.stream_TD = layer_forward(pass, std::move(chunk.stream_TD), kept);
  }
  if (store_ != nullptr) store_->leave(task);
  if (task.only_kv) end_chunk(chunk);
}

void ChunkRunner::head(const Task& task) {
  Chunk& chunk = chunk_of(task);
  const ChunkContext ctx = context_of(chunk);
  const HeadPass pass{ctx, context_.weights, context_.gradients, context_.numerics.head_block_rows,
                      scale_};
  if (store_ == nullptr) {
    chunk.stream_TD = head_forward_backward(pass, std::move(chunk.stream_TD), {});
    return;
  }
  const auto targets = input_.targets.subspan(static_cast<std::size_t>(ctx.begin),
                                              static_cast<std::size_t>(ctx.tokens));
  if (unsettled_.size() == kUnsettled) settle();
  const std::size_t slot = unsettled_.size() * (losses_.size() / kUnsettled);
  chunk.stream_TD = head_forward_backward(pass, std::move(chunk.stream_TD),
                                          {targets, losses_.data() + slot, correct_.data() + slot});
  unsettled_.push_back(task.chunk);
}

void ChunkRunner::settle() {
  if (unsettled_.empty()) return;
  context_.device.stream().synchronize();
  for (std::size_t i = 0; i < unsettled_.size(); ++i) {
    const std::size_t slot = i * (losses_.size() / kUnsettled);
    const auto begin = static_cast<std::size_t>(layout_.chunk_begin(unsettled_[i])),
               tokens = static_cast<std::size_t>(layout_.chunk_size(unsettled_[i]));
    for (std::size_t t = 0; t < tokens; ++t) {
      if (recording_losses_) all_losses_[begin + t] = losses_[slot + t];
      if (input_.targets[begin + t] < 0) continue;
      sums_.loss += static_cast<double>(losses_[slot + t]);
      if (!std::isfinite(losses_[slot + t]) &&
          (sums_.nonfinite_chunk < 0 || unsettled_[i] < sums_.nonfinite_chunk))
        sums_.nonfinite_chunk = unsettled_[i];
      sums_.correct += correct_[slot + t];
      ++sums_.counted;
    }
  }
  unsettled_.clear();
}

void ChunkRunner::layer_backward_task(const Task& task) {
  Chunk& chunk = chunk_of(task);
  const ChunkContext ctx = context_of(chunk);
  const auto layer = static_cast<std::size_t>(task.layer);
  const LayerPass pass = pass_of(ctx, task);
  PagesView gradients;
  if (store_ != nullptr) {
    store_->enter(task);
    gradients = store_->gradients(task.layer);
  }
  layer_backward(pass, context_.gradients.layers[layer], gradients, std::move(chunk.layers[layer]),
                 chunk.stream_TD);
  if (store_ != nullptr) store_->leave(task);
}

void ChunkRunner::embed_backward(const Task& task) {
  Chunk& chunk = chunk_of(task);
  const std::int64_t T = layout_.chunk_size(task.chunk);
  const Lease groups = workspace_.take("token groups", DType::kI32, {T, 4}),
              rows_T = workspace_.take("token rows", DType::kI32, {T});
  std::int64_t G = T, longest = 0;  // at most
  if (store_ != nullptr) {
    token_rows_.build(input_.tokens.subspan(
        static_cast<std::size_t>(layout_.chunk_begin(task.chunk)), static_cast<std::size_t>(T)));
    G = std::ssize(token_rows_.groups());
    longest = token_rows_.groups().front().count;  // those of most rows come first
    context_.device.copy_from_host(groups.view().data(), token_rows_.groups().data(),
                                   G * std::int64_t{sizeof(TokenGroup)});
    context_.device.copy_from_host(rows_T.view().data(), token_rows_.rows().data(),
                                   T * size_of(DType::kI32));
  }
  ops::embedding_backward(
      context_.device.stream(),
      {groups.view().rows(0, G), rows_T, chunk.stream_TD, context_.gradients.embedding, longest});
  end_chunk(chunk);
}

}  // namespace longstride
