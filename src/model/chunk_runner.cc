#include "model/chunk_runner.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "model/head.h"
#include "ops/embedding.h"
#include "ops/rope.h"
#include "tensor/stochastic_round.h"

namespace longstride {
namespace {

// Sets the keys of dropout apart from those of rounding.
constexpr std::int64_t kDropoutKey = std::int64_t{1} << 40;

// Of a row that counts for nothing.
constexpr std::int32_t kNoTarget = -1;

// Of tensors that come back, so that a picture of the workspace can tell them from others.
constexpr std::array<const char*, kRetainedKinds> kFetchedNames = {
    "fetched input", "fetched q", "fetched attention", "fetched mid", "fetched gate", "fetched up"};

}  // namespace

void ChunkRunner::reserve(const SequenceLayout& layout) {
  visits_.reserve(layout);
  selector_.reserve(layout);
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
  LS_CHECK(context_.weighted || (input.weights.empty() && input.earlier.empty()),
           "weights, and a plan without");
  visits_chunk_ = visits_window_ = -1;
  selector_.begin_sequence(layout);
  unsettled_.clear();
  sums_ = {};
  if (!recording_losses_) return;
  all_losses_.assign(static_cast<std::size_t>(layout.tokens), 0.0f);
  all_correct_.assign(all_losses_.size(), 0);
}

void ChunkRunner::run(const Task& task) {
  if (task.kind == TaskKind::kRelease) return pages_.leave(task);  // its chunk may be done
  if (task.layer >= 0) use_fetched(chunk_of(task), task);
  if (task.fetches.empty()) return run_now(task);
  Moving next = fetch(task);
  run_now(task);
  fetching_ = std::move(next);
}

void ChunkRunner::run_now(const Task& task) {
  switch (task.kind) {
    case TaskKind::kEmbed:
      return embed(task);
    case TaskKind::kLayerForward:
      return layer_forward_task(task);
    case TaskKind::kHead:
      return head(task);
    case TaskKind::kLayerBackward:
      return layer_backward_task(task);
    case TaskKind::kRelease:
      return;
    case TaskKind::kEmbedBackward:
      return embed_backward(task);
    case TaskKind::kSend:
      return send(task);
    case TaskKind::kReceiveGradient:
      return receive_gradient(task);
    case TaskKind::kSendGradient:
      return send_gradient(task);
  }
}

void ChunkRunner::drop() {
  context_.device.stream().synchronize();  // losses in flight land before their buffers are reused
  unsettled_.clear();
  if (context_.offloaded != nullptr) context_.offloaded->finish();
  saving_ = {};
  fetching_ = {};
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

ChunkContext ChunkRunner::context_of(const Chunk& chunk, std::int64_t layer) const {
  const bool local = layer >= 0 && is_local(context_.config, layer);
  const std::int64_t begin = layout_.chunk_begin(chunk.index);
  const TokenSlice slice = slice_of(chunk.index);
  const View cos_TN = local ? chunk.local_cos_TN : chunk.cos_TN,
             sin_TN = local ? chunk.local_sin_TN : chunk.sin_TN;
  return {context_.device,
          workspace_,
          context_.config,
          begin + slice.begin,
          slice.rows,
          cos_TN.rows(slice.begin, slice.rows),
          sin_TN.rows(slice.begin, slice.rows),
          compute_,
          context_.numerics.exact(),
          {context_.stage.heads, context_.exchange, begin, layout_.chunk_size(chunk.index), cos_TN,
           sin_TN}};
}

LayerPass ChunkRunner::pass_of(const ChunkContext& ctx, const Task& task) {
  // Layers with the same window share a chunk's visit lists.
  const std::int64_t window = context_.config.windows[static_cast<std::size_t>(task.layer)];
  if (!task.sparse && (visits_chunk_ != task.chunk || visits_window_ != window)) {
    visits_.build(layout_, task.chunk, window);
    visits_chunk_ = task.chunk;
    visits_window_ = window;
  }
  const std::int64_t layer = context_.stage.first_layer + task.layer;  // of the model
  LayerPass pass{.ctx = ctx,
                 .weights = context_.weights.layers[static_cast<std::size_t>(task.layer)],
                 .task = task,
                 .pages = pages_,
                 .visits = visits_.view(),
                 .places = context_.retained.places(task.chunk, task.layer,
                                                    layout_.chunk_size(task.chunk), task.lasting),
                 .rounding = mixed(mixed(input_.rounding, layer), task.chunk),
                 .selector = &selector_,
                 .dropout_key = mixed(mixed(input_.rounding, kDropoutKey), layer),
                 .drops = input_.drops};
  if (task.output_lasts) pass.output_place = input_place(task.chunk, task.layer + 1);
  return pass;
}

View ChunkRunner::input_place(std::int64_t chunk, std::int64_t layer) const {
  return context_.retained.places(chunk, layer, layout_.chunk_size(chunk), {Retained::kInput})
      .input_TD;
}

LayerActivations& ChunkRunner::activations_of(Chunk& chunk, const Task& task) const {
  LayerActivations& here = chunk.layers[static_cast<std::size_t>(task.layer)];
  const std::int64_t T = layout_.chunk_size(chunk.index);
  // A kind's first tensor tells whether it is here.
  Retention looked_at, missing;
  for_activations(sizes_, T,
                  [&](Retained which, const char*, const auto& member, DType, const Shape&) {
                    if (task.held.has(which) && !looked_at.has(which) && !member(here).present())
                      missing = missing | Retention{which};
                    looked_at = looked_at | Retention{which};
                  });
  LayerPlaces found = context_.retained.places(chunk.index, task.layer, T, missing);
  for_activations(sizes_, T, [&](Retained, const char*, const auto& member, DType, const Shape&) {
    if (member(found).present()) member(here) = Lease(member(found));
  });
  return here;
}

void ChunkRunner::save(const Task& task, LayerActivations& held) {
  if (task.saved.empty()) return;
  release_saved();
  const std::int64_t T = layout_.chunk_size(task.chunk);
  for_activations(sizes_, T,
                  [&](Retained which, const char*, const auto& member, DType, const Shape&) {
                    if (task.saved.has(which)) member(saving_.tensors) = std::move(member(held));
                  });
  saving_.layer = task.layer;
  if (context_.offloaded != nullptr)
    saving_.fence =
        context_.offloaded->save({task.chunk, task.layer, T}, task.saved, saving_.tensors);
}

void ChunkRunner::release_saved() {
  if (saving_.layer >= 0 && context_.offloaded != nullptr)
    context_.offloaded->wait_saved(saving_.fence, saving_.tensors);
  saving_ = {};
}

ChunkRunner::Moving ChunkRunner::fetch(const Task& task) {
  const std::int64_t T = layout_.chunk_size(task.chunk);
  Moving moving{.layer = task.fetches_layer};
  for_activations(
      sizes_, T,
      [&](Retained which, const char*, const auto& member, DType dtype, const Shape& shape) {
        if (!task.fetches.has(which)) return;
        const char* name = kFetchedNames[static_cast<std::size_t>(which)];
        member(moving.tensors) = workspace_.take(name, dtype, shape);
      });
  if (context_.offloaded != nullptr)
    moving.fence =
        context_.offloaded->fetch({task.chunk, moving.layer, T}, task.fetches, moving.tensors);
  return moving;
}

void ChunkRunner::use_fetched(Chunk& chunk, const Task& task) {
  if (fetching_.layer < 0) return;
  LS_CHECK(fetching_.layer == task.layer, "activations of layer {} came for layer {}",
           fetching_.layer, task.layer);
  if (context_.offloaded != nullptr)
    context_.offloaded->wait_fetched(fetching_.fence, fetching_.tensors);
  LayerActivations& here = chunk.layers[static_cast<std::size_t>(task.layer)];
  for_activations(sizes_, 1, [&](Retained, const char*, const auto& member, DType, const Shape&) {
    if (member(fetching_.tensors).present()) member(here) = std::move(member(fetching_.tensors));
  });
  fetching_ = {};
}

void ChunkRunner::make_rope_tables(Chunk& chunk) {
  const std::int64_t begin = layout_.chunk_begin(chunk.index), T = layout_.chunk_size(chunk.index),
                     N = context_.config.head_size / 2;
  Device& device = context_.device;
  const auto take = [&](const char* name) { return workspace_.take(name, DType::kF32, {T, N}); };
  chunk.cos_TN = take("cos");
  chunk.sin_TN = take("sin");
  const bool two = context_.rope.local_frequencies.present();
  if (two) chunk.local_cos_TN = take("local cos");
  if (two) chunk.local_sin_TN = take("local sin");
  const Lease positions_T = workspace_.take("positions", DType::kI64, {T});
  positions_.clear();
  for (std::int64_t t = begin; t < begin + T; ++t)
    positions_.push_back(input_.first_position + t - layout_.document_start(t));
  device.copy_from_host(positions_T.view().data(), positions_.data(), T * size_of(DType::kI64));
  ops::rope_tables(device.stream(), {positions_T, context_.rope.frequencies, chunk.cos_TN,
                                     chunk.sin_TN, context_.rope.attention_factor});
  if (two)
    ops::rope_tables(device.stream(),
                     {positions_T, context_.rope.local_frequencies, chunk.local_cos_TN,
                      chunk.local_sin_TN, context_.rope.local_attention_factor});
}

void ChunkRunner::embed(const Task& task) {
  Chunk chunk;
  chunk.index = task.chunk;
  const std::int64_t T = slice_of(task.chunk).rows;
  Device& device = context_.device;
  make_rope_tables(chunk);
  if (task.output) {
    chunk.stream_TD = task.output_lasts
                          ? Lease(input_place(task.chunk, 0))
                          : workspace_.take("residual", compute_, {T, context_.config.hidden_size});
  }
  if (task.output && context_.stage.receives) {
    if (context_.neighbours != nullptr) context_.neighbours->receive(chunk.stream_TD);
  } else if (task.output) {
    const Lease tokens_T = workspace_.take("tokens", DType::kI32, {T});
    device.copy_from_host(tokens_T.view().data(), of_slice(input_.tokens, task.chunk).data(),
                          T * size_of(DType::kI32));
    ops::embedding_forward(device.stream(), {tokens_T, context_.weights.embedding, chunk.stream_TD,
                                             embedding_scale(context_.config, compute_)});
  }
  chunk.layers.resize(static_cast<std::size_t>(context_.config.layers));
  chunks_.push_back(std::move(chunk));
}

void ChunkRunner::send(const Task& task) {
  Chunk& chunk = chunk_of(task);
  if (context_.neighbours != nullptr) context_.neighbours->send(chunk.stream_TD);
  chunk.stream_TD.release();
  if (task.ends_chunk) end_chunk(chunk);
}

void ChunkRunner::receive_gradient(const Task& task) {
  Chunk& chunk = chunk_of(task);
  chunk.stream_TD = workspace_.take("d residual", compute_,
                                    {slice_of(task.chunk).rows, context_.config.hidden_size});
  if (context_.neighbours != nullptr) context_.neighbours->receive_gradient(chunk.stream_TD);
}

void ChunkRunner::send_gradient(const Task& task) {
  Chunk& chunk = chunk_of(task);
  if (context_.neighbours != nullptr) context_.neighbours->send_gradient(chunk.stream_TD);
  end_chunk(chunk);
}

void ChunkRunner::layer_forward_task(const Task& task) {
  Chunk& chunk = chunk_of(task);
  const ChunkContext ctx = context_of(chunk, task.layer);
  pages_.enter(task);
  const LayerPass pass = pass_of(ctx, task);
  if (task.append) layer_store_kv(pass, chunk.stream_TD);
  LayerActivations& held = activations_of(chunk, task);
  // Once the backward pass has begun, stream_TD is a gradient.
  Lease x_TD;
  if (!task.held.has(Retained::kInput)) x_TD = std::move(chunk.stream_TD);
  Lease output_TD = layer_forward(pass, std::move(x_TD), held);
  if (task.output) chunk.stream_TD = std::move(output_TD);
  pages_.leave(task);
  save(task, held);
  if (task.ends_chunk) end_chunk(chunk);
}

void ChunkRunner::head(const Task& task) {
  Chunk& chunk = chunk_of(task);
  const ChunkContext ctx = context_of(chunk);
  const HeadPass pass{
      ctx,    context_.weights, context_.gradients, context_.numerics.head_block_rows,
      scale_, context_.weighted};
  const auto of_chunk = [&](const auto& all) { return of_slice(all, task.chunk); };
  const std::span<const std::int32_t> targets =
      slice_of(task.chunk).tokens > 0 ? of_chunk(input_.targets) : std::span(&kNoTarget, 1);
  if (unsettled_.size() == kUnsettled) settle();
  const std::size_t slot = unsettled_.size() * (losses_.size() / kUnsettled);
  const HeadLosses host{targets,
                        losses_.data() + slot,
                        correct_.data() + slot,
                        of_chunk(input_.weights),
                        of_chunk(input_.earlier),
                        input_.clip};
  unsettled_.push_back(task.chunk);
  if (task.ends_chunk) {
    head_forward(pass, chunk.stream_TD, host);
    return end_chunk(chunk);
  }
  chunk.stream_TD = head_forward_backward(pass, std::move(chunk.stream_TD), host);
}

void ChunkRunner::logits(std::int64_t chunk, float* host) {
  Task task;
  task.chunk = chunk;
  Chunk& at = chunk_of(task);
  head_logits(context_of(at), context_.weights, at.stream_TD, host);
  end_chunk(at);
}

double ChunkRunner::objective(std::size_t token, double loss) const {
  if (input_.weights.empty()) return loss;
  const auto weight = static_cast<double>(input_.weights[token]);
  if (input_.earlier.empty()) return weight * loss;
  const double ratio = std::exp(-loss - static_cast<double>(input_.earlier[token])),
               bounded = std::clamp(ratio, 1.0 - static_cast<double>(input_.clip.below),
                                    1.0 + static_cast<double>(input_.clip.above));
  return -std::min(ratio * weight, bounded * weight);
}

void ChunkRunner::weigh(std::span<const float> weights) {
  settle();
  input_.weights = weights;
  sums_ = {};
}

void ChunkRunner::settle() {
  if (unsettled_.empty()) return;
  context_.device.stream().synchronize();
  for (std::size_t i = 0; i < unsettled_.size(); ++i) {
    const std::size_t slot = i * (losses_.size() / kUnsettled);
    const TokenSlice slice = slice_of(unsettled_[i]);
    const auto begin = static_cast<std::size_t>(layout_.chunk_begin(unsettled_[i]) + slice.begin),
               tokens = static_cast<std::size_t>(slice.tokens);
    for (std::size_t t = 0; t < tokens; ++t) {
      if (recording_losses_) {
        all_losses_[begin + t] = losses_[slot + t];
        all_correct_[begin + t] = correct_[slot + t] != 0 ? 1 : 0;
      }
      if (input_.targets[begin + t] < 0) continue;
      sums_.loss += objective(begin + t, static_cast<double>(losses_[slot + t]));
      if (!std::isfinite(losses_[slot + t]) &&
          (sums_.nonfinite_chunk < 0 || unsettled_[i] < sums_.nonfinite_chunk))
        sums_.nonfinite_chunk = unsettled_[i];
      sums_.correct += correct_[slot + t];
      ++sums_.targets;
    }
  }
  unsettled_.clear();
}

void ChunkRunner::layer_backward_task(const Task& task) {
  Chunk& chunk = chunk_of(task);
  const ChunkContext ctx = context_of(chunk, task.layer);
  pages_.enter(task);
  const LayerPass pass = pass_of(ctx, task);
  layer_backward(pass, context_.gradients.layers[static_cast<std::size_t>(task.layer)],
                 std::move(activations_of(chunk, task)), chunk.stream_TD);
  pages_.leave(task);
}

void ChunkRunner::embed_backward(const Task& task) {
  Chunk& chunk = chunk_of(task);
  const View gradient = context_.gradients.embedding;
  if (!gradient.present()) return end_chunk(chunk);
  const TokenSlice slice = slice_of(task.chunk);
  const std::int64_t T = slice.rows;
  const Lease groups = workspace_.take("token groups", DType::kI32, {T, 4}),
              rows_T = workspace_.take("token rows", DType::kI32, {T});
  if (slice.tokens == 0) return end_chunk(chunk);
  token_rows_.build(of_slice(input_.tokens, task.chunk));
  const std::int64_t G = std::ssize(token_rows_.groups()),
                     longest = token_rows_.groups().front().count;  // most rows come first
  Device& device = context_.device;
  device.copy_from_host(groups.view().data(), token_rows_.groups().data(),
                        G * std::int64_t{sizeof(TokenGroup)});
  device.copy_from_host(rows_T.view().data(), token_rows_.rows().data(), T * size_of(DType::kI32));
  ops::embedding_backward(device.stream(), {groups.view().rows(0, G), rows_T, chunk.stream_TD,
                                            context_.gradients.embedding, longest,
                                            embedding_scale(context_.config, compute_)});
  end_chunk(chunk);
}

}  // namespace longstride
