// What stands around the plots of a memory map: phases of the step, axes and labels. Only for the
// files of memory_map_svg.
#pragma once

#include <string>
#include <vector>

#include "plan/memory_map_svg_canvas.h"

namespace longstride::svg {

// The bar of phases, with a tick for every episode where they can be told apart.
void draw_phases(Canvas& canvas, const MemoryMap& map, const Frame& bar);
// Lines where phases begin, over all plots.
void draw_phase_borders(Canvas& canvas, const MemoryMap& map, double top, const Frame& lowest);

void draw_frame(Canvas& canvas, const Frame& frame);
// To the left of the frame, about `count` ticks.
void draw_byte_axis(Canvas& canvas, const Frame& frame, const std::string& name, int count);
// Below it.
void draw_time_axis(Canvas& canvas, const MemoryMap& map, const Frame& frame);

struct Label {
  double at = 0;  // the height that it belongs to
  std::string name, details;
  const char* colour = kInk;
};
// To the right of the frame, at least `spacing` apart, each with a line to its height.
void draw_labels(Canvas& canvas, const Frame& frame, std::vector<Label> labels, double spacing);

}  // namespace longstride::svg
