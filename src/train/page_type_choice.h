// The types of pages of each layer: what the user's words make of a numerics record.
#pragma once

#include "model/config.h"
#include "schedule/numerics.h"
#include "train/step.h"

namespace longstride {

// Sets the record's types of pages; its chunk, compute and sparse layers are set. Unless the choice
// is by layer, the first layer keeps keys and values in the type of compute, because most of the
// error of a whole model would be its own (docs/sparse.md); and layers with a window of at most
// kShortWindow chunks keep bf16 gradients where the others have them in 8 bits, because few of
// theirs exist at once. Throws Error for an unknown word, or
// a list that does not fit the model.
constexpr std::int64_t kShortWindow = 8;
void choose_page_types(const NumericsChoice& choice, const ModelConfig& config,
                       NumericsRecord& record);

}  // namespace longstride
