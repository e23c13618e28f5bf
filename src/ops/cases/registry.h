// All cases. A new operation is declared here and added to the list in registry.cc.
#pragma once

#include <vector>

#include "ops/cases/case.h"

namespace longstride::ops {

const std::vector<OpCase>& op_cases();

std::vector<OpCase> linear_cases();
std::vector<OpCase> rms_norm_cases();
std::vector<OpCase> rope_cases();
std::vector<OpCase> swiglu_cases();
std::vector<OpCase> embedding_cases();
std::vector<OpCase> loss_head_cases();
std::vector<OpCase> elementwise_cases();
std::vector<OpCase> optimizer_cases();
std::vector<OpCase> paged_attention_cases();
std::vector<OpCase> page_selection_cases();
std::vector<OpCase> page_codes_cases();
std::vector<OpCase> adapter_cases();
std::vector<OpCase> quantize_cases();
std::vector<OpCase> swap_axes_cases();

}  // namespace longstride::ops
