// What a configuration says about single parameters: which are trained, at which rate, with which
// decay.
#pragma once

#include <vector>

#include "model/parameter_specs.h"
#include "train/config.h"

namespace longstride {

// Applies model.train and model.freeze, unless there are adapters, which decide that;
// optimizer.learning_rates and optimizer.weight_decays. Throws Error for an entry of another form,
// a glob that matches nothing, if nothing is left to train, and if a quantized parameter is to be
// trained.
void choose_parameters(const TrainConfig& config, std::vector<ParameterSpec>& specs);

}  // namespace longstride
