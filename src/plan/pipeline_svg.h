// Draws the schedule of a pipeline, stages by time, as a picture that stands alone: SVG without
// scripts, fonts or other files.
#pragma once

#include <string>
#include <vector>

#include "plan/pipeline_simulation.h"

namespace longstride {

// Every picture begins with this, so that a program may recognise its own.
inline constexpr const char* kPipelineSvgBegin =
    "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"longstride-pipeline\"";

struct PipelinePicture {
  std::string title, subtitle;
  std::vector<std::string> stages;  // what each has: "layers 0 to 3"
  std::string note = {};            // after how to read it
};

// From top to bottom: a row for every stage, with its tasks; the time; the colours; how to read it.
// Neighbouring chunks differ in lightness. What is drawn says in a tooltip what it is, where it is
// wide enough to be pointed at; tasks that are narrower are drawn together. Below 1.5 MB for up to
// 8 stages.
std::string to_svg(const PipelineRun& run, const PipelinePicture& picture);

}  // namespace longstride
