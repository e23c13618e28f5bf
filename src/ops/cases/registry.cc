#include "ops/cases/registry.h"

#include <iterator>

namespace longstride::ops {

const std::vector<OpCase>& op_cases() {
  static const std::vector<OpCase> all = [] {
    std::vector<OpCase> cases;
    for (auto list :
         {linear_cases, rms_norm_cases, rope_cases, swiglu_cases, embedding_cases, loss_head_cases,
          elementwise_cases, optimizer_cases, paged_attention_cases, page_selection_cases,
          page_codes_cases, adapter_cases, quantize_cases, swap_axes_cases}) {
      std::vector<OpCase> more = list();
      cases.insert(cases.end(), std::make_move_iterator(more.begin()),
                   std::make_move_iterator(more.end()));
    }
    return cases;
  }();
  return all;
}

}  // namespace longstride::ops
