#include "plan/memory_map_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "plan/memory_map_svg_axes.h"
#include "plan/memory_map_svg_text.h"

namespace longstride {
namespace {

using svg::bytes_text;
using svg::Canvas;
using svg::Frame;

constexpr double kWidth = 1240, kMargin = 24, kLeft = 80, kPlotWidth = 820;
constexpr double kDeviceHeight = 540, kLaneHeight = 92, kCloseUpHeight = 210;
constexpr double kTallLaneHeight = 150;  // with activations, which are thin above an optimizer
constexpr double kLabelSpacing = 17;     // in host memory and on disk

// A tenant that the caller names has one colour, wherever it is.
class TenantColours {
 public:
  explicit TenantColours(const MemoryMap& map) {
    for (const MapTenant& tenant : map.tenants) note(tenant.part, tenant.name);
    for (const auto* lanes : {&map.host, &map.disk})
      for (const MapLane& lane : *lanes) note(lane.part, lane.name);
  }
  const char* of(MapPart part, const std::string& name) const {
    if (part != MapPart::kFixed) return svg::colours_of(part).full;
    const auto found = std::find(fixed_.begin(), fixed_.end(), name);
    return svg::fixed_colour(static_cast<std::size_t>(found - fixed_.begin()));
  }

 private:
  void note(MapPart part, const std::string& name) {
    if (part == MapPart::kFixed && std::find(fixed_.begin(), fixed_.end(), name) == fixed_.end())
      fixed_.push_back(name);
  }
  std::vector<std::string> fixed_;
};

// ---- the device ----

void draw_fill(Canvas& canvas, const Frame& frame, const MapFill& fill, const std::string& name) {
  std::vector<double> times;
  std::vector<std::int64_t> low, high;
  std::int64_t most = 0;
  for (const MapLevel& level : fill.levels) {
    times.push_back(level.begin);
    low.push_back(fill.address);
    high.push_back(fill.address + level.bytes);
    most = std::max(most, level.bytes);
  }
  times.push_back(frame.time);
  const char* what = fill.part == MapPart::kWorkspace ? "in use, up to its highest address"
                                                      : "that exist, on the device";
  canvas.area(frame, times, low, high, svg::colours_of(fill.part).full,
              fmt::format("{} {}: up to {}", name, what, bytes_text(most)));
}

// The line at the device's memory, with its text above. Far above what is used, it is not to scale.
void draw_available(Canvas& canvas, const MemoryMap& map, const Frame& frame) {
  if (map.available <= 0) return;
  const bool fits = map.used() <= map.available, cut = map.available > map.shown;
  const double y = cut ? frame.y : frame.at_bytes(map.available);
  const char* colour = fits ? svg::kInk : svg::kAlert;
  const std::string text = fmt::format("{} on the device{}", bytes_text(map.available),
                                       !fits ? ": the step does not fit"
                                       : cut ? ", far above (not to scale)"
                                             : "");
  const double width = svg::text_width(text, 11);
  // What does not fit is behind the text.
  if (!fits) canvas.rect(frame.right() - width - 10, y - 18, width + 10, 16, "#ffffff");
  canvas.line(frame.x, y, frame.right(), y, colour,
              " stroke-width=\"1.5\" stroke-dasharray=\"7 5\"");
  canvas.text(frame.right() - 4, y - 6, text, {11, colour, "end"});
}

void draw_tenants(Canvas& canvas, const MemoryMap& map, const Frame& frame,
                  const TenantColours& colours) {
  std::vector<svg::Label> labels;
  for (const MapTenant& tenant : map.tenants) {
    const double top = frame.at_bytes(tenant.address + tenant.bytes),
                 height = frame.at_bytes(tenant.address) - top;
    const bool always = tenant.part == MapPart::kFixed || tenant.part == MapPart::kSummaries;
    const char* full = colours.of(tenant.part, tenant.name);
    std::string bytes = bytes_text(tenant.bytes);
    if (tenant.wanted > tenant.bytes) bytes += " of " + bytes_text(tenant.wanted);
    canvas.rect(frame.x, top, frame.width, height,
                always ? full : svg::colours_of(tenant.part).pale,
                fmt::format("{}: {} reserved", tenant.name, bytes));
    // A table of some bytes is in the map, but nobody looks for it.
    if (height > 1e-4) labels.push_back({top + height / 2, tenant.name, bytes, full});
  }
  // Less than a pixel cannot be seen.
  if (map.available - map.used() > map.shown / static_cast<std::int64_t>(frame.height))
    labels.push_back({(frame.at_bytes(map.used()) + frame.y) / 2, "free",
                      bytes_text(map.available - map.used()), "#eef2f6"});
  svg::draw_labels(canvas, frame, std::move(labels), 19);
}

void draw_device(Canvas& canvas, const MemoryMap& map, const Frame& frame,
                 const TenantColours& colours) {
  draw_tenants(canvas, map, frame, colours);
  for (const MapFill& fill : map.fills)
    for (const MapTenant& tenant : map.tenants)
      if (tenant.part == fill.part) draw_fill(canvas, frame, fill, tenant.name);
  std::vector<const MapRect*> tensors;
  for (const MapRect& rect : map.rects)
    if (rect.part >= MapPart::kInput) tensors.push_back(&rect);
  canvas.rects(frame, tensors, false);
  for (const MapTenant& tenant : map.tenants) {
    const double y = frame.at_bytes(tenant.address);
    if (tenant.address > 0) canvas.line(frame.x, y, frame.right(), y, "#ffffff");
  }
  svg::draw_frame(canvas, frame);
  draw_available(canvas, map, frame);
  svg::draw_byte_axis(canvas, frame, "device memory", 10);
}

// ---- what is on its way, host memory and disk: bytes, one tenant above the other ----

// Nothing leaves while something lands.
std::int64_t most_moving(const MemoryMap& map) {
  std::int64_t most = 0;
  for (const MapLane& lane : map.moving) most = std::max(most, lane.bytes);
  return most;
}

double lane_height(const std::vector<MapLane>& lanes) {
  const bool tall = std::any_of(lanes.begin(), lanes.end(),
                                [](const MapLane& lane) { return lane.part >= MapPart::kInput; });
  return std::max(tall ? kTallLaneHeight : kLaneHeight,
                  kLabelSpacing * static_cast<double>(lanes.size() + 1));
}

void draw_lanes(Canvas& canvas, const Frame& frame, const std::vector<MapLane>& lanes,
                const std::string& name, const TenantColours& colours) {
  std::set<double> begins;
  for (const MapLane& lane : lanes)
    for (const MapLevel& level : lane.levels) begins.insert(level.begin);
  std::vector<double> times(begins.begin(), begins.end());
  times.push_back(frame.time);
  std::vector<std::int64_t> low(begins.size(), 0);
  std::vector<svg::Label> labels;
  canvas.rect(frame.x, frame.y, frame.width, frame.height, "#f5f7fa");
  for (const MapLane& lane : lanes) {
    std::vector<std::int64_t> high = low;
    std::size_t level = 0, widest = 0;
    std::int64_t most = 0;
    for (std::size_t i = 0; i < high.size(); ++i) {
      while (level + 1 < lane.levels.size() && lane.levels[level + 1].begin <= times[i]) ++level;
      high[i] += lane.levels[level].bytes;
      if (lane.levels[level].bytes > most) {
        most = lane.levels[level].bytes;
        widest = i;
      }
    }
    const char* colour = colours.of(lane.part, lane.name);
    canvas.area(frame, times, low, high, colour, svg::lane_text(lane, most));
    labels.push_back({(frame.at_bytes(low[widest]) + frame.at_bytes(high[widest])) / 2, lane.name,
                      bytes_text(lane.bytes), colour});
    low = std::move(high);
  }
  svg::draw_frame(canvas, frame);
  svg::draw_byte_axis(canvas, frame, name, 3);
  svg::draw_labels(canvas, frame, std::move(labels), kLabelSpacing);
}

// ---- tensors ----

void draw_legend(Canvas& canvas, const MemoryMap& map, double y) {
  std::set<MapPart> present;
  const auto note = [&](const auto& list) {
    for (const auto& shown : list)
      if (shown.part >= MapPart::kInput) present.insert(shown.part);
  };
  note(map.rects);
  note(map.host);
  note(map.disk);
  for (const MapCloseUp& close_up : map.close_ups) note(close_up.rects);
  canvas.text(kMargin, y + 10, "Tensors", {12.5, svg::kInk, "start", true});
  double x = kLeft + 14;
  for (const MapPart part : present) {
    canvas.rect(x, y, 12, 12, svg::colours_of(part).full);
    canvas.text(x + 17, y + 10, svg::name_of(part));
    x += 17 + svg::text_width(svg::name_of(part), 12) + 22;
  }
  if (map.moving.empty()) return;
  canvas.rect(x, y, 12, 12, svg::colours_of(MapPart::kOther).full);
  canvas.hatch(x, y, 12, 12);
  canvas.text(x + 17, y + 10, "came back");
}

void draw_close_ups(Canvas& canvas, const MemoryMap& map, double y) {
  constexpr double kGap = 28;
  const auto n = static_cast<double>(map.close_ups.size());
  Frame frame{kMargin, y + 28, (kWidth - 2 * kMargin - (n - 1) * kGap) / n, kCloseUpHeight, 1.0, 1};
  for (const MapCloseUp& close_up : map.close_ups) {
    frame.bytes = std::max<std::int64_t>(1, close_up.bytes);
    canvas.text(frame.x, y, close_up.name, {12.5, svg::kInk, "start", true});
    canvas.text(frame.x, y + 17, svg::close_up_text(close_up), {11.5, svg::kFaintInk});
    canvas.rect(frame.x, frame.y, frame.width, frame.height,
                svg::colours_of(MapPart::kWorkspace).pale);
    std::vector<const MapRect*> rects;
    for (const MapRect& rect : close_up.rects) rects.push_back(&rect);
    canvas.rects(frame, rects, true);
    svg::draw_frame(canvas, frame);
    frame.x += frame.width + kGap;
  }
}

}  // namespace

std::string to_svg(const MemoryMap& map) {
  Canvas canvas;
  canvas.text(kMargin, 38, map.title, {20, svg::kInk, "start", true});
  canvas.text(kMargin, 60, svg::subtitle(map), {13, svg::kFaintInk});
  svg::draw_phases(canvas, map, {kLeft, 86, kPlotWidth, 22, map.end, 1});
  constexpr double kTop = 128;
  Frame frame{kLeft,         kTop,    kPlotWidth,
              kDeviceHeight, map.end, std::max<std::int64_t>(1, map.shown)};
  const TenantColours colours(map);
  draw_device(canvas, map, frame, colours);
  for (const auto& [lanes, name] : {std::pair{&map.moving, "moving"}, std::pair{&map.host, "host"},
                                    std::pair{&map.disk, "disk"}}) {
    if (lanes->empty()) continue;
    frame.y = frame.bottom() + 22;
    frame.height = lane_height(*lanes);
    frame.bytes =
        std::max<std::int64_t>(1, lanes == &map.moving ? most_moving(map) : svg::reserved(*lanes));
    draw_lanes(canvas, frame, *lanes, name, colours);
  }
  svg::draw_phase_borders(canvas, map, kTop, frame);
  svg::draw_time_axis(canvas, map, frame);
  double y = frame.bottom() + 58;
  draw_legend(canvas, map, y);
  y = canvas.paragraph(kMargin, y + 42, kWidth - 2 * kMargin, svg::caption(map),
                       {13, svg::kFaintInk}) +
      26;
  if (!map.close_ups.empty()) {
    canvas.text(kMargin, y, "The workspace up close", {16, svg::kInk, "start", true},
                "tensors at their addresses, over the time of one chunk or a few");
    draw_close_ups(canvas, map, y + 30);
    y += 30 + 28 + kCloseUpHeight;
  }
  const double height = y + 26;
  return fmt::format(
             "{} width=\"{:.0f}\" height=\"{:.0f}\" viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" "
             "aria-label=\"{}\" font-family=\"Helvetica,Arial,sans-serif\">\n"
             "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
             kMemoryMapSvgBegin, kWidth, height, kWidth, height, svg::escaped(map.title)) +
         canvas.svg() + "</svg>\n";
}

}  // namespace longstride
