#include "plan/memory_map_svg_canvas.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace longstride::svg {
namespace {

// A tenth of a pixel is fine enough, and short.
std::string number(double value) {
  std::string text = fmt::format("{:.1f}", value);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text == "-0" ? "0" : text;
}

std::string title(std::string_view tooltip) {
  return tooltip.empty() ? "" : fmt::format("<title>{}</title>", escaped(tooltip));
}

std::string text_element(double x, double y, std::string_view text, const TextStyle& style,
                         std::string_view attributes, std::string_view remark = "") {
  return fmt::format(
      "<text x=\"{}\" y=\"{}\" font-size=\"{}\" text-anchor=\"{}\" fill=\"{}\"{}{}>{}{}</text>\n",
      number(x), number(y), number(style.size), style.anchor, style.colour,
      style.bold ? " font-weight=\"bold\"" : "", attributes, escaped(text),
      remark.empty() ? ""
                     : fmt::format("<tspan dx=\"8\" font-size=\"12\" font-weight=\"normal\" "
                                   "fill=\"{}\">{}</tspan>",
                                   kFaintInk, escaped(remark)));
}

// Slanted lines over a rectangle; those of neighbours continue each other.
std::string hatch_path(double x, double y, double width, double height) {
  constexpr double kSpacing = 5;
  std::string path;
  for (double sum = kSpacing * std::ceil((x + y) / kSpacing); sum < x + y + width + height;
       sum += kSpacing) {
    const double left = std::max(x, sum - y - height), right = std::min(x + width, sum - y);
    path += fmt::format("M{} {}L{} {}", number(left), number(sum - left), number(right),
                        number(sum - right));
  }
  return path;
}

std::string hatch_element(const std::string& path) {
  return path.empty() ? ""
                      : fmt::format(
                            "<path d=\"{}\" stroke=\"#ffffff\" stroke-opacity=\"0.75\" "
                            "fill=\"none\" pointer-events=\"none\"/>\n",
                            path);
}

bool is_dark(MapPart part) {
  return part == MapPart::kAttention || part == MapPart::kGate || part == MapPart::kMid ||
         part == MapPart::kGradient;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      case '\'':
        result += "&#39;";
        break;
      default:
        result += static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' ? '?' : c;
    }
  }
  return result;
}

Colours colours_of(MapPart part) {
  switch (part) {
    case MapPart::kFixed:
      return {"#8f9ca9", "#cbd2d9"};
    case MapPart::kKvPages:
      return {"#eeb04c", "#fcf3e3"};
    case MapPart::kKvGradients:
      return {"#d9694a", "#fae8e2"};
    case MapPart::kSummaries:
      return {"#8c6bb1", "#e8e0f0"};
    case MapPart::kDiskBuffers:
      return {"#b8ab90", "#eee9df"};
    case MapPart::kLeaving:
      return {"#93b7d3", "#e6eff6"};
    case MapPart::kLanding:
      return {"#2f6f9f", "#d9e6f0"};
    case MapPart::kRetained:
      return {"#8fb3a7", "#f0f6f4"};
    case MapPart::kWorkspace:
      return {"#a9bfd8", "#f1f5fa"};
    case MapPart::kInput:
      return {"#88ccee", ""};
    case MapPart::kQ:
      return {"#44aa99", ""};
    case MapPart::kAttention:
      return {"#117733", ""};
    case MapPart::kMid:
      return {"#4477aa", ""};
    case MapPart::kGate:
      return {"#aa4499", ""};
    case MapPart::kUp:
      return {"#dda0cf", ""};
    case MapPart::kGradient:
      return {"#882255", ""};
    case MapPart::kScratch:
      return {"#ddcc77", ""};
    case MapPart::kOther:
      break;
  }
  return {"#b0bac5", ""};
}

const char* fixed_colour(std::size_t n) {
  static constexpr std::array<const char*, 4> kShades = {"#71869e", "#b39fac", "#97ad9f",
                                                         "#c6bda6"};
  return kShades[n % kShades.size()];
}

const char* name_of(MapPart tensors) {
  switch (tensors) {
    case MapPart::kInput:
      return "residual stream";
    case MapPart::kQ:
      return "q";
    case MapPart::kAttention:
      return "attention";
    case MapPart::kMid:
      return "after attention";
    case MapPart::kGate:
      return "gate";
    case MapPart::kUp:
      return "up";
    case MapPart::kGradient:
      return "gradients";
    case MapPart::kScratch:
      return "scratch";
    default:
      return "other";
  }
}

double text_width(std::string_view text, double size, bool bold) {
  double width = 0;
  for (const char c : text)
    width += std::string_view("fijlrt.,:;|'I ()").find(c) != std::string_view::npos ? 0.29
             : std::string_view("mwMW%").find(c) != std::string_view::npos          ? 0.85
             : c >= 'A' && c <= 'Z'                                                 ? 0.68
                                                                                    : 0.55;
  return width * size * (bold ? 1.06 : 1.0);
}

void Canvas::text(double x, double y, std::string_view text, const TextStyle& style,
                  std::string_view remark) {
  svg_ += text_element(x, y, text, style, "", remark);
}

double Canvas::paragraph(double x, double y, double width, std::string_view text,
                         const TextStyle& style) {
  const double height = 1.5 * style.size;
  width *= 0.88;  // fonts that stand in for Helvetica may be wider
  std::string line;
  const auto end_line = [&] {
    if (!line.empty()) svg_ += text_element(x, y, line, style, "");
    if (!line.empty()) y += height;
    line.clear();
  };
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    if (text_width(line, style.size) + text_width(word, style.size) + style.size > width)
      end_line();
    if (!line.empty()) line += ' ';
    line += word;
  }
  end_line();
  return y;
}

void Canvas::text_upwards(double x, double y, std::string_view text, const TextStyle& style) {
  svg_ += text_element(x, y, text, style,
                       fmt::format(" transform=\"rotate(-90 {} {})\"", number(x), number(y)));
}

void Canvas::rect(double x, double y, double width, double height, const char* fill,
                  std::string_view tooltip) {
  svg_ += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"", number(x),
                      number(y), number(width), number(height), fill);
  svg_ += tooltip.empty() ? "/>\n" : fmt::format(">{}</rect>\n", title(tooltip));
}

void Canvas::line(double x1, double y1, double x2, double y2, const char* stroke,
                  std::string_view more) {
  svg_ += fmt::format("<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"{}\"{}/>\n",
                      number(x1), number(y1), number(x2), number(y2), stroke, more);
}

void Canvas::hatch(double x, double y, double width, double height) {
  svg_ += hatch_element(hatch_path(x, y, width, height));
}

void Canvas::rects(const Frame& frame, const std::vector<const MapRect*>& rects, bool named) {
  std::string names, lines;
  // One group for each colour; without smoothed edges, which would show as lines between
  // neighbours.
  for (int part = 0; part < kMapParts; ++part) {
    bool open = false;
    for (const MapRect* r : rects) {
      if (static_cast<int>(r->part) != part) continue;
      if (!open)
        svg_ += fmt::format("<g fill=\"{}\" shape-rendering=\"crispEdges\">\n",
                            colours_of(r->part).full);
      open = true;
      const double x = frame.at_time(r->begin), y = frame.at_bytes(r->address + r->bytes),
                   width = frame.at_time(r->end) - x, height = frame.at_bytes(r->address) - y;
      svg_ += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\">{}</rect>\n",
                          number(x), number(y), number(width), number(height), title(r->label));
      if (r->fetched) lines += hatch_path(x, y, width, height);
      const std::string_view name = std::string_view(r->label).substr(0, r->label.find(','));
      if (named && height >= 11 && width >= text_width(name, 10) + 6)
        names += text_element(x + width / 2, y + height / 2 + 3.5, name,
                              {10, is_dark(r->part) ? "#ffffff" : kInk, "middle"},
                              " pointer-events=\"none\"");
    }
    if (open) svg_ += "</g>\n";
  }
  svg_ += hatch_element(lines);
  svg_ += names;
}

void Canvas::area(const Frame& frame, const std::vector<double>& times,
                  const std::vector<std::int64_t>& low, const std::vector<std::int64_t>& high,
                  const char* fill, std::string_view tooltip) {
  std::string path = fmt::format("M{} {}", number(frame.at_time(times.front())),
                                 number(frame.at_bytes(low.front())));
  for (std::size_t i = 0; i < high.size(); ++i)
    path +=
        fmt::format("V{}H{}", number(frame.at_bytes(high[i])), number(frame.at_time(times[i + 1])));
  for (std::size_t i = low.size(); i-- > 0;)
    path += fmt::format("V{}H{}", number(frame.at_bytes(low[i])), number(frame.at_time(times[i])));
  svg_ += fmt::format("<path d=\"{}z\" fill=\"{}\">{}</path>\n", path, fill, title(tooltip));
}

std::vector<double> ticks(double most, int count) {
  const double rough = most / count, power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0})
    if (factor * power >= rough) step = factor * power;
  std::vector<double> result;
  for (int i = 0; i * step <= most * (1 + 1e-9); ++i) result.push_back(i * step);
  return result;
}

ByteUnit unit_for(std::int64_t bytes) {
  constexpr std::array<ByteUnit, 5> kUnits = {{{"bytes", 1.0},
                                               {"KiB", 1024.0},
                                               {"MiB", 1048576.0},
                                               {"GiB", 1073741824.0},
                                               {"TiB", 1099511627776.0}}};
  std::size_t i = 0;
  while (i + 1 < kUnits.size() && static_cast<double>(bytes) >= 2 * kUnits[i + 1].bytes) ++i;
  return kUnits[i];
}

}  // namespace longstride::svg
