#include "plan/cost_seconds.h"

#include <algorithm>

namespace longstride {
namespace {

double product_seconds(const TaskWork& work, const MachineRates& rates) {
  ProductRates products = rates.products;
  if (work.is_head) products.peak = rates.loss_head;
  double seconds = work.gradient_sums / rates.gradient_sums;
  for (std::size_t i = 0; i < work.product_count; ++i) {
    const Product& p = work.products[i];
    seconds += p.flops() / products.rate(p.rows, p.inner, p.outer);
  }
  return seconds;
}

// The rate at a head size, relative to 128 and more.
double head_share(double head_size, double at_64) {
  if (head_size >= 128) return 1;
  return head_size >= 64 ? at_64 + (1 - at_64) * (head_size - 64) / 64 : at_64 * head_size / 64;
}

double attention_seconds(const AttentionWork& a, const AttentionRates& r) {
  if (a.queries == 0) return 0;
  const auto of = [&](double forward, double backward) { return a.backward ? backward : forward; };
  // A rate of peak * n / (n + half) is as if there were `half` more keys, in every segment.
  const double keys = a.earlier_keys + a.segments * of(r.half_keys_forward, r.half_keys_backward);
  double dense = keys * a.flops_per_key / of(r.earlier_forward, r.earlier_backward) +
                 a.own_flops * (1 + r.half_own / a.queries) / of(r.own_forward, r.own_backward);
  double selected = a.selected_flops / of(r.selected_forward, r.selected_backward);
  if (a.backward && a.exact) {
    dense *= r.exact_backward;
    selected *= r.exact_selected;
  }
  const double window = a.window_flops / of(r.window_forward, r.window_backward);
  const double tiles = std::max(1.0, a.queries / 128) * a.heads,
               share = head_share(a.head_size, of(r.small_heads_forward, r.small_heads_backward));
  return (dense + selected + window) * (1 + r.half_tiles / tiles) / share;
}

}  // namespace

TaskSeconds seconds_of(const TaskWork& work, const MachineRates& rates) {
  TaskSeconds seconds;
  const double products = product_seconds(work, rates);
  (work.is_head ? seconds.head : seconds.products) = products;
  seconds.attention = attention_seconds(work.attention, rates.attention);
  seconds.selection = work.score_flops / rates.page_scores;
  const double memory = work.memory / rates.memory;
  (work.is_head ? seconds.head : seconds.other) += memory;
  seconds.other += rates.task_overhead;
  return seconds;
}

}  // namespace longstride
