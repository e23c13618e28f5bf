// --link-rate: what a simulated pipeline has between two ranks.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "plan/pipeline_simulation.h"

namespace longstride::cli {

CLI::Option* add_link_rate(CLI::App& command, std::string& rate);
// A link through host memory, with the rate if there is one. Throws Error if that is no size.
PipelineLink link_of(const std::string& rate);

}  // namespace longstride::cli
