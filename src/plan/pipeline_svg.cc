#include "plan/pipeline_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "plan/memory_map_svg_canvas.h"

namespace longstride {
namespace {

using svg::Canvas;
using svg::Frame;

constexpr double kWidth = 1240, kMargin = 24, kLeft = 150, kPlotWidth = 990;
constexpr double kTop = 92, kGap = 5;
constexpr double kNarrowest = 1.2;  // of what is drawn apart, in pixels
constexpr const char* kWaiting = "#eef1f4";

// Of even and odd chunks. As in pictures of memory, colour-blind people can tell them apart.
struct PhaseColours {
  const char *even, *odd;
};
constexpr std::array<PhaseColours, kPipelinePhases> kColours = {
    {{"#4477aa", "#7ea6cc"}, {"#ddaa33", "#eccb7a"}, {"#882255", "#b5648e"}}};

const char* colour_of(PipelinePhase phase, std::int64_t chunk) {
  const PhaseColours& colours = kColours[static_cast<std::size_t>(phase)];
  return chunk % 2 == 0 ? colours.even : colours.odd;
}

double row_height(std::int64_t stages) {
  return std::clamp(420.0 / static_cast<double>(stages), 14.0, 46.0);
}

std::string seconds_text(double s) { return fmt::format("{:.{}f} s", s, s < 10 ? 3 : 1); }

// One task, or several that are too narrow to be seen apart.
struct Box {
  const PipelineEvent* first = nullptr;
  std::array<double, kPipelinePhases> seconds{};
  double end = 0;
  std::int64_t tasks = 0;
};

void draw_box(Canvas& canvas, const Frame& row, const Box& box, bool many) {
  const PipelineEvent& e = *box.first;
  const double x = row.at_time(e.begin), width = row.at_time(box.end) - x;
  if (box.tasks > 1) {
    const auto most = std::ranges::max_element(box.seconds) - box.seconds.begin();
    canvas.rect(x, row.y, width, row.height, kColours[static_cast<std::size_t>(most)].even);
    return;
  }
  const std::string sequence = many ? fmt::format(" of sequence {}", e.sequence) : "";
  canvas.rect(x, row.y, width, row.height, colour_of(e.phase, e.chunk),
              fmt::format("stage {}, chunk {}{}: {}, {} from {}", e.stage, e.chunk, sequence,
                          name_of(e.phase), seconds_text(e.end - e.begin), seconds_text(e.begin)));
  const std::string number = fmt::format("{}", e.chunk);
  const bool dark = e.phase != PipelinePhase::kRecompute && e.chunk % 2 == 0;
  if (row.height >= 14 && width >= svg::text_width(number, 10) + 5)
    canvas.text(x + width / 2, row.y + row.height / 2 + 3.5, number,
                {10, dark ? "#ffffff" : svg::kInk, "middle"});
}

void draw_stage(Canvas& canvas, const Frame& row, const PipelineRun& run, std::int64_t stage,
                bool many) {
  canvas.rect(row.x, row.y, row.width, row.height, kWaiting);
  Box box;
  const auto close = [&] {
    if (box.tasks > 0) draw_box(canvas, row, box, many);
    box = {};
  };
  for (const PipelineEvent& e : run.events) {
    if (e.stage != stage) continue;
    const double narrow = kNarrowest * row.time / row.width;
    // Goes on with a box that is too narrow, if no wait in between can be seen.
    if (box.tasks > 0 && (box.end - box.first->begin >= narrow || e.begin - box.end >= narrow ||
                          (e.end - e.begin >= narrow)))
      close();
    if (box.tasks++ == 0) box.first = &e;
    box.seconds[static_cast<std::size_t>(e.phase)] += e.end - e.begin;
    box.end = e.end;
  }
  close();
}

void draw_time(Canvas& canvas, const Frame& frame) {
  for (const double tick : svg::ticks(frame.time, 10)) {
    const double x = frame.at_time(tick);
    canvas.line(x, frame.bottom(), x, frame.bottom() + 5, svg::kFrame);
    canvas.text(x, frame.bottom() + 18, fmt::format("{:g} s", tick),
                {11, svg::kFaintInk, "middle"});
  }
  canvas.line(frame.x, frame.bottom(), frame.right(), frame.bottom(), svg::kFrame);
  canvas.text(frame.right(), frame.bottom() + 36, "time of the step", {12, svg::kInk, "end"});
}

void draw_legend(Canvas& canvas, const PipelineRun& run, double y) {
  double x = kLeft;
  const auto entry = [&](const char* colour, const char* other, const std::string& text) {
    canvas.rect(x, y, 12, 12, colour);
    if (other != nullptr) canvas.rect(x + 12, y, 12, 12, other);
    const double after = other != nullptr ? 29 : 17;
    canvas.text(x + after, y + 10, text);
    x += after + svg::text_width(text, 12) + 22;
  };
  for (int p = 0; p < kPipelinePhases; ++p) {
    const auto phase = static_cast<PipelinePhase>(p);
    const auto is = [&](const PipelineEvent& e) { return e.phase == phase; };
    if (std::ranges::any_of(run.events, is))
      entry(colour_of(phase, 0), colour_of(phase, 1), name_of(phase));
  }
  entry(kWaiting, nullptr, "waiting");
}

constexpr const char* kCaption =
    "Every row is a stage, and every box a chunk; even and odd chunks differ in lightness. Chunks "
    "go "
    "forward from the first stage to the last. The last stage begins the backward pass with the "
    "last "
    "chunk, and gradients go back to the first. A stage recomputes a chunk while it waits for the "
    "chunk's gradient. At the right is how much of the time a stage waits.";

}  // namespace

std::string to_svg(const PipelineRun& run, const PipelinePicture& picture) {
  const std::int64_t stages = run.stages();
  LS_CHECK(std::ssize(picture.stages) == stages, "{} names of {} stages", picture.stages.size(),
           stages);
  const bool many = std::ranges::any_of(run.events, [](const auto& e) { return e.sequence > 0; });
  Canvas canvas;
  canvas.text(kMargin, 38, picture.title, {20, svg::kInk, "start", true});
  canvas.text(kMargin, 60, picture.subtitle, {13, svg::kFaintInk});
  const double height = row_height(stages);
  Frame frame{kLeft,
              kTop,
              kPlotWidth,
              static_cast<double>(stages) * (height + kGap),
              std::max(run.seconds, 1e-12),
              1};
  canvas.text(kWidth - kMargin, kTop - 8, "waits", {11, svg::kFaintInk, "end"});
  for (std::int64_t s = 0; s < stages; ++s) {
    Frame row = frame;
    row.y = kTop + static_cast<double>(s) * (height + kGap);
    row.height = height;
    draw_stage(canvas, row, run, s, many);
    const double middle = row.y + height / 2;
    const std::string& has = picture.stages[static_cast<std::size_t>(s)];
    if (height >= 30) {
      canvas.text(kMargin, middle - 2, fmt::format("stage {}", s),
                  {12.5, svg::kInk, "start", true});
      canvas.text(kMargin, middle + 13, has, {11, svg::kFaintInk});
    } else {
      canvas.text(kMargin, middle + 4, fmt::format("{}", s), {11, svg::kInk, "start", true}, has);
    }
    canvas.text(kWidth - kMargin, middle + 4, fmt::format("{:.1f}%", 100 * run.idle_share(s)),
                {12, svg::kInk, "end"});
  }
  draw_time(canvas, frame);
  double y = frame.bottom() + 58;
  draw_legend(canvas, run, y);
  const std::string note = picture.note.empty() ? "" : " " + picture.note;
  y = canvas.paragraph(kMargin, y + 42, kWidth - 2 * kMargin, kCaption + note,
                       {13, svg::kFaintInk});
  return fmt::format(
             "{} width=\"{:.0f}\" height=\"{:.0f}\" viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" "
             "aria-label=\"{}\" font-family=\"Helvetica,Arial,sans-serif\">\n"
             "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
             kPipelineSvgBegin, kWidth, y + 10, kWidth, y + 10, svg::escaped(picture.title)) +
         canvas.svg() + "</svg>\n";
}

}  // namespace longstride
