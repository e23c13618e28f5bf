//   T tokens of the chunk   D hidden size   Q query heads x head size   K KV heads x head size
//   F feed-forward size   V vocabulary
#include "plan/task_work.h"

#include <algorithm>

#include "base/error.h"
#include "tensor/page_codes.h"

namespace longstride {
namespace {

constexpr double kBackward = 2.5;  // products of attention's backward pass per forward one
constexpr double kF32 = 4;         // bytes

double real(std::int64_t n) { return static_cast<double>(n); }

void add(TaskWork& work, double rows, double inner, double outer, double times = 1) {
  LS_CHECK(work.product_count < TaskWork::kMostProducts, "more products than a task has");
  work.products[work.product_count++] = {rows, inner, outer, times};
}

// Both gradients of y [rows, outer] = x [rows, inner] W^T; that of W is added to in fp32, if it is
// trained (or the share of such matrices that are).
void add_backward(TaskWork& work, double rows, double inner, double outer, double trained) {
  add(work, rows, outer, inner);
  if (trained > 0) add(work, outer, rows, inner, trained);
  work.gradient_sums += 2 * kF32 * inner * outer * trained;
}

// A task that only selects leaves q to the one that attends, without keys before their norm.
bool retains_queries(const Task& task) {
  const bool for_later = !task.selects || task.attends() || task.lasting.has(Retained::kQ);
  return task.retains.has(Retained::kQ) && for_later;
}

// Bytes read and written to widen an element of a projection for a product; 0: it is not quantized.
double bytes_to_widen(const NumericsRecord& numerics) {
  if (numerics.quantize.empty()) return 0;
  return (numerics.quantize == "int8" ? 1 : 0.516) + real(size_of(numerics.compute));
}

// Pairs of a query and a key of a causal sequence of n tokens.
double causal_pairs(double n, double window) {
  const double w = std::min(n, window);
  return w * (w + 1) / 2 + (n - w) * w;
}

}  // namespace

TaskCounter::TaskCounter(const ModelConfig& config, const NumericsRecord& numerics,
                         const SequenceLayout& layout, const TrainedParts& trained,
                         const HeadShare& heads)
    : config_(config),
      numerics_(numerics),
      layout_(layout),
      trained_(trained),
      heads_(heads),
      share_(1.0 / real(heads.ranks)),
      D_(real(config.hidden_size)),
      Q_(real(config.query_heads * config.head_size)),
      K_(real(config.kv_heads * config.head_size)),
      F_(real(config.ffn_size)),
      V_(real(config.vocabulary)),
      bytes_(real(size_of(numerics.compute))) {}

// Attention adds to sums in fp32 where pages are coded.
double TaskCounter::gradient_bytes(const Task& task) const {
  const DType type = numerics_.pages_of(task.layer).gradients;
  return is_page_code(type) ? kF32 : real(size_of(type));
}

double TaskCounter::rows_of(const Task& task) const {
  return real(layout_.chunk_size(task.chunk)) * share_;
}

TaskWork TaskCounter::count(const Task& task) const {
  TaskWork work;
  const double T = rows_of(task);
  switch (task.kind) {
    case TaskKind::kEmbed:
      // RoPE tables.
      work.memory = kF32 * T * real(config_.head_size) * (config_.local_rope ? 2 : 1);
      if (task.output) work.memory += 2 * bytes_ * T * D_;
      break;
    case TaskKind::kLayerForward:
      forward(task, work);
      break;
    case TaskKind::kHead:
      head(task, work);
      break;
    case TaskKind::kLayerBackward:
      backward(task, work);
      break;
    case TaskKind::kRelease:
      break;
    case TaskKind::kEmbedBackward:
      if (trained_.first_layer > 0) break;
      work.memory = (bytes_ + 2 * kF32) * T * D_;
      break;
    case TaskKind::kSend:
    case TaskKind::kReceiveGradient:
    case TaskKind::kSendGradient:
      break;
  }
  return work;
}

void TaskCounter::forward(const Task& task, TaskWork& work) const {
  const double T = rows_of(task);
  const LayerWork does = forward_work(task);
  const double norm = 2 * bytes_ * T * D_;  // reads and writes
  double memory = 0;
  if (task.append) {
    memory += norm;
    add(work, T, D_, K_);
    add(work, T, D_, K_);
    memory += 4 * bytes_ * T * K_;  // rotated into the pages
    if (config_.qk_norm) memory += 2 * bytes_ * T * K_;
    if (task.sparse) memory += bytes_ * T * K_;  // summaries
    send_to_heads(task, K_, 2, work);            // k and v
  }
  if (does.q) {
    memory += norm;
    add(work, T, D_, Q_);
    if (!config_.qk_norm)
      memory += 2 * bytes_ * T * Q_;  // rotated in place
    else if (retains_queries(task))
      add(work, T, D_, K_);  // keys before their norm
  }
  if (config_.qk_norm && (does.attention || task.selects)) memory += 4 * bytes_ * T * Q_;
  if (does.attention || task.selects) send_to_heads(task, Q_, 1, work);  // q
  if (does.attention) {
    send_to_tokens(task, Q_, 1, work);  // outputs
    attention(task, work);
  }
  if (task.selects) scores(task, work);
  if (does.mid) {
    add(work, T, Q_, D_);
    memory += bytes_ * T * D_;  // the residual
    if (config_.output_norms) memory += 2 * norm;
  }
  if (does.gate || does.up) memory += norm;
  if (does.gate) add(work, T, D_, F_);
  if (does.up) add(work, T, D_, F_);
  if (task.output) {
    memory += 3 * bytes_ * T * F_;  // SwiGLU
    add(work, T, F_, D_);
    memory += bytes_ * T * D_;
    if (config_.output_norms) memory += 2 * norm;
  }
  for (std::size_t i = 0; i < work.product_count; ++i)
    memory += bytes_to_widen(numerics_) * work.products[i].inner * work.products[i].outer;
  work.memory += memory;
}

void TaskCounter::backward(const Task& task, TaskWork& work) const {
  const double T = rows_of(task);
  const double trained = trained_.of_layer(task.layer);
  add_backward(work, T, F_, D_, trained);
  add_backward(work, T, D_, F_, trained);
  add_backward(work, T, D_, F_, trained);
  add_backward(work, T, Q_, D_, trained);
  add_backward(work, T, D_, Q_, trained);
  add_backward(work, T, D_, K_, trained);
  add_backward(work, T, D_, K_, trained);
  if (config_.output_norms) {  // what the norms are of, again, and their gradients
    add(work, T, F_, D_);
    add(work, T, Q_, D_);
    work.memory += 2 * bytes_ * T * 3 * D_;
  }
  work.memory += bytes_to_widen(numerics_) * D_ * (3 * F_ + 2 * Q_ + 2 * K_);
  // SwiGLU again and its gradient; two norms again and their gradients.
  work.memory += bytes_ * T * (8 * F_ + 12 * D_);
  // dq is rotated back; the chunk's gradient pages become dk and dv.
  work.memory += bytes_ * T * (2 * Q_ + 2 * K_) + 2 * gradient_bytes(task) * T * K_;
  if (config_.qk_norm) work.memory += bytes_ * T * (8 * Q_ + 4 * K_);
  send_to_heads(task, Q_, 3, work);   // q, outputs and their gradient
  send_to_tokens(task, Q_, 1, work);  // dq
  send_to_tokens(task, K_, 2, work);  // dk and dv
  attention(task, work);
}

void TaskCounter::head(const Task& task, TaskWork& work) const {
  const double tokens = rows_of(task);
  work.is_head = true;
  // Blocks of rows, each with the logits and both gradients. The last one may be shorter.
  const double rows = std::min(tokens, real(std::max<std::int64_t>(1, numerics_.head_block_rows))),
               blocks = tokens / rows;
  add(work, rows, D_, V_, blocks);
  if (task.ends_chunk) {  // losses alone
    work.memory = bytes_ * tokens * (2 * V_ + 2 * D_);
    return;
  }
  add(work, rows, V_, D_, blocks);
  if (trained_.head) {
    add(work, V_, rows, D_, blocks);
    work.gradient_sums = 2 * kF32 * blocks * V_ * D_;
  }
  // The logits twice, their gradient once; the final norm and its gradient.
  work.memory = bytes_ * tokens * (3 * V_ + 5 * D_);
}

void TaskCounter::attention(const Task& task, TaskWork& work) const {
  AttentionWork& a = work.attention;
  a.backward = task.kind == TaskKind::kLayerBackward;
  a.exact = numerics_.exact();
  a.queries = real(layout_.chunk_size(task.chunk));
  a.heads = real(config_.query_heads) * share_;
  a.head_size = real(config_.head_size);
  a.flops_per_key = 4 * Q_ * share_ * a.queries * (a.backward ? kBackward : 1);
  work.memory += bytes_of_codes(task);
  if (task.sparse) return selected(task, work);
  const std::int64_t window = config_.windows[static_cast<std::size_t>(task.layer)];
  if (layout_.keys(task.chunk, window).kind == AttentionKind::kDense) return dense(task, work);
  const double begin = real(layout_.chunk_begin(task.chunk)),
               pairs = causal_pairs(begin + a.queries, real(window)) -
                       causal_pairs(begin, real(window));
  a.window_flops = a.flops_per_key * pairs / a.queries;
  // Every block of keys adds to its gradient pages itself.
  if (a.backward)
    work.memory +=
        4 * gradient_bytes(task) * K_ * share_ * real(task.visited.size() * layout_.page_tokens);
}

double TaskCounter::bytes_of_codes(const Task& task) const {
  const double elements = 2 * K_ * share_ * real(layout_.page_tokens) *
                          real(task.sparse ? task.most_visited : task.visited.size());
  double bytes = 0;
  const PageTypes types = numerics_.pages_of(task.layer);
  if (is_page_code(types.kv)) bytes += elements * (1 + bytes_);
  // Sums are zeroed and read, codes read and written.
  if (task.kind == TaskKind::kLayerBackward && is_page_code(types.gradients))
    bytes += elements * (2 * kF32 + 2);
  return bytes;
}

void TaskCounter::send_to_heads(const Task& task, double columns, double count,
                                TaskWork& work) const {
  if (!heads_.several()) return;
  const double mine = real(heads_.slice(layout_.chunk_size(task.chunk)).tokens);
  work.exchanges += count;
  work.bytes_sent += count * mine * columns * bytes_ * (1 - share_);
}

void TaskCounter::send_to_tokens(const Task& task, double columns, double count,
                                 TaskWork& work) const {
  if (!heads_.several()) return;
  const std::int64_t T = layout_.chunk_size(task.chunk);
  work.exchanges += count;
  work.bytes_sent += count * real(T - heads_.slice(T).tokens) * columns * bytes_ * share_;
}

void TaskCounter::dense(const Task& task, TaskWork& work) const {
  AttentionWork& a = work.attention;
  const double T = a.queries, begin = real(layout_.chunk_begin(task.chunk)), Q = Q_ * share_,
               K = K_ * share_;
  const auto count = real(std::ssize(*task.segments));
  a.own_flops = a.flops_per_key * (T + 1) / 2;
  a.earlier_keys = begin;
  // The own keys may be a segment of their own.
  const bool own_apart =
      begin > 0 && task.segments->back().begin == layout_.chunk_begin(task.chunk);
  a.segments = begin > 0 ? count - (own_apart ? 1 : 0) : 0;
  // Partial results are added up in fp32.
  const double merged = count > 1 ? count * (bytes_ + 2 * kF32) * T * Q : 0;
  work.memory += merged;
  if (!a.backward) return;
  // The library sums dq in fp32 and takes the products of outputs and their gradients; those of
  // keys and values are added to the gradient pages.
  work.memory += count * (2 * kF32 + 3 * bytes_) * T * Q +
                 2 * (bytes_ + 2 * gradient_bytes(task)) * (begin + T) * K;
}

void TaskCounter::selected(const Task& task, TaskWork& work) const {
  AttentionWork& a = work.attention;
  const std::int64_t begin = layout_.chunk_begin(task.chunk), P = layout_.page_tokens,
                     pages = std::min(numerics_.sparse.budget(task.layer), begin / P);
  const double T = a.queries, keys = real(pages * P), Q = Q_ * share_, K = K_ * share_;
  if (layout_.chunk_size(task.chunk) % P != 0) {  // not for the library
    a.window_flops = a.flops_per_key * (keys + (T + 1) / 2);
    return;
  }
  a.own_flops = a.flops_per_key * (T + 1) / 2;
  a.selected_flops = a.flops_per_key * keys;
  if (pages == 0) return;
  // Every query page has copies of its pages, and the backward pass also of their gradients.
  const double copies = T / real(P) * keys * 2 * K * bytes_;
  work.memory += copies * (a.backward ? 4 : 2);
  // Queries and results are packed, and merged with those of the own keys.
  work.memory += bytes_ * T * Q * (a.backward ? 12 : 6);
  if (a.backward)
    work.memory += 4 * gradient_bytes(task) * K * real(task.most_visited * P) +
                   2 * (2 * kF32 + 3 * bytes_) * T * Q;
}

void TaskCounter::scores(const Task& task, TaskWork& work) const {
  const Selection& s = numerics_.sparse.selection;
  const std::int64_t pages = layout_.chunk_begin(task.chunk) / layout_.page_tokens;
  const double vectors =
                   real(pages * std::max<std::int64_t>(1, layout_.page_tokens / s.summary_tokens)),
               heads = real(s.scoring == Scoring::kOomb ? config_.kv_heads : config_.query_heads) *
                       share_;
  if (numerics_.sparse.budget(task.layer) == 0 || pages == 0) return;
  const std::int64_t queries = layout_.chunk_size(task.chunk);
  work.score_flops = 4 * real(config_.head_size) * heads * real(queries) * vectors;
  if (!heads_.several()) return;
  // Those of a process's heads go to all others.
  const double query_pages = real((queries + layout_.page_tokens - 1) / layout_.page_tokens);
  work.exchanges += 1;
  work.bytes_sent += real(heads_.ranks - 1) * query_pages * real(pages) * kF32;
}

}  // namespace longstride
