// The types of pages of each layer: what the user's words make of a numerics record.
#pragma once

#include "model/config.h"
#include "schedule/numerics.h"
#include "train/step.h"

namespace longstride {

// Sets the record's types of pages; its chunk, compute and sparse layers are set. Layers with a
// window of at most kShortWindow chunks keep bf16 gradients where the others have them in 8 bits,
// unless the choice is by layer: few of theirs exist at once. Throws Error for an unknown word, or
// a list that does not fit the model.
constexpr std::int64_t kShortWindow = 8;
void choose_page_types(const NumericsChoice& choice, const ModelConfig& config,
                       NumericsRecord& record);

}  // namespace longstride
