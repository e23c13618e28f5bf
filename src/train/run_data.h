// Opens the data of a run.
#pragma once

#include <string>

#include "data/corpus.h"
#include "train/run_plan.h"

namespace longstride {

// Fills the plan's corpora and samples; needs its configuration, its model and its resume point.
// Throws Error if the data do not fit the model.
void open_run_data(RunPlan& plan);

// Digest of the training data (corpus_digest); of a mix, of all its sources.
std::string data_digest(const RunPlan& plan);

}  // namespace longstride
