// What a task of a step computes, counted from shapes alone: products, attention, bytes. How long
// that takes on a machine is plan/cost_seconds.h. Plain data.
//
// Tasks compute what src/model/layer.cc, layer_backward.cc and head.cc do; a change there belongs
// here too.
#pragma once

#include <array>
#include <cstdint>

#include "model/config.h"
#include "model/trainable.h"
#include "schedule/layout.h"
#include "schedule/numerics.h"
#include "schedule/step_schedule.h"

namespace longstride {

// [rows, inner] x [inner, outer].
struct Product {
  double rows = 0, inner = 0, outer = 0;
  double times = 1;
  double flops() const { return 2 * rows * inner * outer * times; }
};

// FLOPs as in AttentionRates.
struct AttentionWork {
  bool backward = false, exact = false;
  double queries = 0, heads = 0, head_size = 0;
  // Dense: keys before the chunk, and the segments that hold some of them.
  double earlier_keys = 0, segments = 0;
  double flops_per_key = 0;   // of all queries with one key
  double own_flops = 0;       // of the chunk with itself, causal, by the library
  double window_flops = 0;    // by our own kernels
  double selected_flops = 0;  // over copies of selected pages
};

struct TaskWork {
  static constexpr std::size_t kMostProducts = 16;
  std::array<Product, kMostProducts> products;
  std::size_t product_count = 0;
  bool is_head = false;      // the products are the loss head's
  double gradient_sums = 0;  // bytes of fp32 weight gradients that products read and write
  AttentionWork attention;
  double score_flops = 0;  // of page scores, as in MachineRates
  double memory = 0;       // bytes that everything else reads and writes
  // Around attention, where processes share heads (train/linked_heads.h): tensors that they
  // exchange, and the bytes of them that one process sends.
  double exchanges = 0, bytes_sent = 0;
};

// Counts tasks of one sequence of one document. The arguments outlive it.
class TaskCounter {
 public:
  TaskCounter(const ModelConfig& config, const NumericsRecord& numerics,
              const SequenceLayout& layout, const TrainedParts& trained,
              const HeadShare& heads = {});
  TaskWork count(const Task& task) const;

 private:
  void forward(const Task& task, TaskWork& work) const;
  void backward(const Task& task, TaskWork& work) const;
  void head(const Task& task, TaskWork& work) const;
  void attention(const Task& task, TaskWork& work) const;
  void dense(const Task& task, TaskWork& work) const;
  void selected(const Task& task, TaskWork& work) const;
  void scores(const Task& task, TaskWork& work) const;
  // Read and written to widen coded pages, and to add to them.
  double bytes_of_codes(const Task& task) const;
  // `count` tensors of so many columns, of all heads, to the heads or back to the tokens.
  void send_to_heads(const Task& task, double columns, double count, TaskWork& work) const;
  void send_to_tokens(const Task& task, double columns, double count, TaskWork& work) const;

  const ModelConfig& config_;
  const NumericsRecord& numerics_;
  const SequenceLayout& layout_;
  const TrainedParts& trained_;
  // Rows of products. Attention has all tokens of the chunk and this share of the heads.
  double rows_of(const Task& task) const;
  // Of an element that attention adds gradients to.
  double gradient_bytes(const Task& task) const;
  HeadShare heads_;
  double share_;
  // Hidden size, all query heads, all KV heads, feed-forward, vocabulary; bytes of an activation.
  double D_, Q_, K_, F_, V_, bytes_;
};

}  // namespace longstride
