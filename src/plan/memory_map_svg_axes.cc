#include "plan/memory_map_svg_axes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace longstride::svg {
namespace {

const char* phase_text(MapPhaseKind kind) {
  switch (kind) {
    case MapPhaseKind::kForward:
      return "forward";
    case MapPhaseKind::kKept:
      return "kept";
    case MapPhaseKind::kBackward:
      break;
  }
  return "recompute and backward";
}

const char* phase_colour(MapPhaseKind kind) {
  switch (kind) {
    case MapPhaseKind::kForward:
      return "#cfe3f1";
    case MapPhaseKind::kKept:
      return "#2f6f9f";
    case MapPhaseKind::kBackward:
      break;
  }
  return "#8fb8d6";
}

}  // namespace

void draw_phases(Canvas& canvas, const MemoryMap& map, const Frame& bar) {
  for (const MapPhase& phase : map.phases) {
    const double x = bar.at_time(phase.begin), width = bar.at_time(phase.end) - x;
    const bool kept = phase.kind == MapPhaseKind::kKept;
    const std::string name = phase_text(phase.kind),
                      all = fmt::format("{}, {} chunk{}", name, phase.chunks,
                                        phase.chunks == 1 ? "" : "s");
    canvas.rect(x, bar.y, width, bar.height, phase_colour(phase.kind),
                kept ? all + ": forward, then backward from the activations kept" : all);
    for (const std::string& text : {all, name}) {
      if (width < text_width(text, 12) + 8) continue;
      canvas.text(x + width / 2, bar.y + 15, text, {12, kept ? "#ffffff" : kInk, "middle"});
      break;
    }
    if (width < text_width(name, 12) + 8)
      canvas.text(x + width / 2, bar.y - 5, name, {11, kInk, "middle"});
  }
  if (bar.width / static_cast<double>(map.episodes.size()) < 4) return;
  for (const double begin : map.episodes)
    if (begin > 0)
      canvas.line(bar.at_time(begin), bar.bottom() - 4, bar.at_time(begin), bar.bottom(),
                  "#ffffff");
}

void draw_phase_borders(Canvas& canvas, const MemoryMap& map, double top, const Frame& lowest) {
  for (const MapPhase& phase : map.phases)
    if (phase.begin > 0)
      canvas.line(lowest.at_time(phase.begin), top, lowest.at_time(phase.begin), lowest.bottom(),
                  "#334e68", " stroke-dasharray=\"1 3\"");
}

void draw_frame(Canvas& canvas, const Frame& f) {
  canvas.line(f.x, f.y, f.x, f.bottom(), kFrame);
  canvas.line(f.x, f.bottom(), f.right(), f.bottom(), kFrame);
}

void draw_byte_axis(Canvas& canvas, const Frame& frame, const std::string& name, int count) {
  const ByteUnit unit = unit_for(frame.bytes);
  for (const double tick : ticks(static_cast<double>(frame.bytes) / unit.bytes, count)) {
    const double y = frame.at_bytes(static_cast<std::int64_t>(tick * unit.bytes));
    canvas.line(frame.x - 5, y, frame.x, y, kFrame);
    canvas.text(frame.x - 9, y + 4, fmt::format("{:g}", tick), {11, kFaintInk, "end"});
  }
  canvas.text_upwards(30, frame.y + frame.height / 2, fmt::format("{}, {}", name, unit.name),
                      {12, kInk, "middle"});
}

void draw_time_axis(Canvas& canvas, const MemoryMap& map, const Frame& frame) {
  const double most = map.in_seconds ? map.end : 100;
  for (const double tick : ticks(most, 10)) {
    const double x = frame.x + frame.width * tick / most;
    canvas.line(x, frame.bottom(), x, frame.bottom() + 5, kFrame);
    canvas.text(x, frame.bottom() + 18,
                map.in_seconds ? fmt::format("{:g} s", tick) : fmt::format("{:g}%", tick),
                {11, kFaintInk, "middle"});
  }
  canvas.text(frame.right(), frame.bottom() + 36,
              map.in_seconds ? "time of the step" : "share of the step's tasks", {12, kInk, "end"});
}

void draw_labels(Canvas& canvas, const Frame& frame, std::vector<Label> labels, double spacing) {
  std::stable_sort(labels.begin(), labels.end(),
                   [](const Label& a, const Label& b) { return a.at > b.at; });
  // Upwards from the bottom; then down again where the topmost would leave the frame.
  std::vector<double> heights;
  double below = frame.bottom() + spacing / 2;
  for (const Label& label : labels) {
    below = std::min(label.at, below - spacing);
    heights.push_back(below);
  }
  double above = frame.y - spacing / 2;
  for (std::size_t i = labels.size(); i-- > 0;) {
    heights[i] = std::max(heights[i], above + spacing);
    above = heights[i];
  }
  const double x = frame.right() + 30;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const Label& label = labels[i];
    const double y = heights[i];
    canvas.line(frame.right() + 4, label.at, frame.right() + 10, label.at, kFrame);
    canvas.line(frame.right() + 10, label.at, x - 4, y, kFrame);
    canvas.rect(x, y - 6, 12, 12, label.colour);
    canvas.text(x + 19, y + 4, label.name, {12.5, kInk, "start", true}, label.details);
  }
}

}  // namespace longstride::svg
