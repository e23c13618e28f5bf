// What pictures of memory are drawn with: text, rectangles and areas as SVG, and the colours. Only
// for the files of memory_map_svg and for pages that show them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plan/memory_map.h"

namespace longstride::svg {

inline constexpr const char *kInk = "#1f2933", *kFaintInk = "#616e7c", *kGrid = "#e4e7eb",
                            *kFrame = "#9aa5b1", *kAlert = "#b3261e";

// For text and attribute values of XML and HTML. Characters that XML forbids become '?'.
std::string escaped(std::string_view text);

// Colours that people with any kind of colour blindness can tell apart, by lightness if not by hue.
struct Colours {
  const char* full;
  const char* pale;  // the same, for space that is reserved
};
Colours colours_of(MapPart part);
// Of the n-th tenant that is there all the time.
const char* fixed_colour(std::size_t n);
// What the tensors of this part are called.
const char* name_of(MapPart tensors);

// A rectangle of the picture and the ranges that it shows: time from left to right, bytes from
// bottom to top.
struct Frame {
  double x = 0, y = 0, width = 0, height = 0;
  double time = 1;         // shown from 0
  std::int64_t bytes = 1;  // likewise
  double right() const { return x + width; }
  double bottom() const { return y + height; }
  double at_time(double t) const { return x + width * t / time; }
  double at_bytes(std::int64_t b) const {
    return bottom() - height * static_cast<double>(b) / static_cast<double>(bytes);
  }
};

struct TextStyle {
  double size = 12;
  const char* colour = kInk;
  const char* anchor = "start";
  bool bold = false;
};

// About as wide as Helvetica draws it.
double text_width(std::string_view text, double size, bool bold = false);

class Canvas {
 public:
  // `remark` follows in plain, faint letters.
  void text(double x, double y, std::string_view text, const TextStyle& style = {},
            std::string_view remark = "");
  // Lines of at most `width`, the first at y. Returns the y of the line after the last.
  double paragraph(double x, double y, double width, std::string_view text,
                   const TextStyle& style = {});
  // Upwards, with its middle at (x, y).
  void text_upwards(double x, double y, std::string_view text, const TextStyle& style = {});
  void rect(double x, double y, double width, double height, const char* fill,
            std::string_view tooltip = "");
  void line(double x1, double y1, double x2, double y2, const char* stroke,
            std::string_view more = "");
  // White slanted lines, on what is there already.
  void hatch(double x, double y, double width, double height);
  // Rectangles of tensors, in their colours; fetched ones are hatched. `named`: those that are
  // large enough have the first word of their label in them, up to the comma.
  void rects(const Frame& frame, const std::vector<const MapRect*>& rects, bool named);
  // Between two functions of time, both given at `times`, the last of which is the end.
  void area(const Frame& frame, const std::vector<double>& times,
            const std::vector<std::int64_t>& low, const std::vector<std::int64_t>& high,
            const char* fill, std::string_view tooltip);
  const std::string& svg() const { return svg_; }

 private:
  std::string svg_;
};

// Multiples of a round number from 0 to `most`, at most `count` + 1 of them.
std::vector<double> ticks(double most, int count);

// The unit in which an axis up to `bytes` is labelled.
struct ByteUnit {
  const char* name;
  double bytes;
};
ByteUnit unit_for(std::int64_t bytes);

}  // namespace longstride::svg
