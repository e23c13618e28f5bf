#include "plan/memory_map_svg.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <regex>

#include "tests/plan/map_cases.h"
#include "tests/plan/xml_check.h"

namespace longstride {
namespace {

bool shows(const std::string& svg, const std::string& text) {
  return svg.find(text) != std::string::npos;
}

// "" or a rectangle or text that is outside of the picture.
std::string outside(const std::string& svg) {
  std::smatch size;
  const std::regex of_picture("width=\"([0-9.]+)\" height=\"([0-9.]+)\" viewBox");
  if (!std::regex_search(svg, size, of_picture)) return "no size";
  const double width = std::stod(size[1]), height = std::stod(size[2]);
  const std::regex element(
      "<(rect|text) x=\"([^\"]+)\" y=\"([^\"]+)\""
      "(?: width=\"([^\"]+)\" height=\"([^\"]+)\")?");
  for (auto it = std::sregex_iterator(svg.begin(), svg.end(), element);
       it != std::sregex_iterator(); ++it) {
    const auto number = [&](int group) {
      return (*it)[group].matched ? std::stod((*it)[group]) : 0.0;
    };
    const double x = number(2), y = number(3), w = number(4), h = number(5);
    if (!(x >= 0 && y >= 0 && w >= 0 && h >= 0 && x + w <= width && y + h <= height))
      return it->str();
  }
  return "";
}

TEST(MemoryMapSvg, TheCheckerOfXmlRefuses) {
  EXPECT_EQ(XmlCheck::check("<a b=\"1\" c=\"&lt;\"><d/>text &amp; more</a>\n"), "");
  for (const char* bad :
       {"", "<a>", "<a></b>", "<a/><a/>", "<a>&</a>", "<a>&nbsp;</a>", "<a b=1/>", "<a b=\"<\"/>",
        "<a b=\"1\" b=\"2\"/>", "<a b=\"1\"c=\"2\"/>", "<a>1 > 0</a>", "<a>\x01</a>", "text<a/>",
        "<a b=\"1/>", "<a", "<a>< b</a>"})
    EXPECT_NE(XmlCheck::check(bad), "") << bad;
}

TEST(MemoryMapSvg, IsWellFormedAndInsideItsPicture) {
  for (const MapCase& c : map_cases()) {
    const std::string svg = to_svg(c.map());
    EXPECT_EQ(XmlCheck::check(svg), "") << c.name;
    EXPECT_EQ(outside(svg), "") << c.name;
    EXPECT_TRUE(svg.starts_with(kMemoryMapSvgBegin));
    EXPECT_LT(svg.size(), 1'500'000u) << c.name;
    for (const char* number : {"\"nan", "\"-nan", "\"inf", "\"-inf", " nan", "Vinf"})
      EXPECT_FALSE(shows(svg, number)) << c.name << ": " << number;
  }
}

// The text of all elements: paragraphs are broken into lines.
std::string prose_of(const std::string& svg) {
  std::string prose;
  bool in_tag = false;
  for (const char c : svg) {
    if (c == '<') in_tag = true;
    if (!in_tag) prose += c == '\n' ? ' ' : c;
    if (c == '>') in_tag = false;
  }
  return prose;
}

TEST(MemoryMapSvg, NamesWhatIsThere) {
  for (const MapCase& c : map_cases()) {
    const MemoryMap map = c.map();
    const std::string svg = to_svg(map);
    for (const MapTenant& tenant : map.tenants) {
      if (tenant.bytes > map.shown / 1'000'000) {
        EXPECT_TRUE(shows(svg, ">" + tenant.name + "<")) << c.name << ": " << tenant.name;
      }
    }
    for (const auto* lanes : {&map.host, &map.disk})
      for (const MapLane& lane : *lanes) EXPECT_TRUE(shows(svg, ">" + lane.name + "<")) << c.name;
    for (const MapLane& lane : map.moving) EXPECT_TRUE(shows(svg, ">" + lane.name + "<")) << c.name;
    const std::string prose = prose_of(svg);
    EXPECT_EQ(shows(prose, "of activations leave the device"), !map.moving.empty()) << c.name;
    EXPECT_EQ(shows(svg, ">came back<"), !map.moving.empty()) << c.name;
    for (const MapCloseUp& close_up : map.close_ups)
      EXPECT_TRUE(shows(svg, ">" + close_up.name + "<")) << c.name;
    EXPECT_EQ(shows(prose, "retained activations wait"), c.plan.memory.retained > 0) << c.name;
    EXPECT_EQ(shows(prose, "the device cannot hold"), c.plan.memory.host_pages > 0) << c.name;
    EXPECT_EQ(shows(svg, "time of the step"), map.in_seconds) << c.name;
  }
}

// Every tensor that is retained is drawn, with its name as a tooltip.
TEST(MemoryMapSvg, RetainedTensorsAreVisible) {
  const MapCase c = map_case({.name = "some", .retained = {{Retained::kMid, Retained::kUp}}});
  const std::string svg = to_svg(c.map());
  for (std::int64_t layer = 0; layer < c.input.config.layers; ++layer)
    for (const char* kind : {"mid", "up"}) {
      const std::string title = fmt::format("<title>{}, chunk 0, layer {}</title>", kind, layer);
      EXPECT_TRUE(shows(svg, title)) << title;
    }
  EXPECT_FALSE(shows(svg, "<title>gate, chunk 0, layer 0</title>"));
}

// What came back is hatched, here in the close-up of a backward pass, and says so.
TEST(MemoryMapSvg, FetchedTensorsAreHatched) {
  const char* white = "stroke=\"#ffffff\" stroke-opacity";
  const MapCase c = map_case({.name = "swapped", .swapped = {{Retained::kMid}}});
  const std::string svg = to_svg(c.map()), plain = to_svg(map_case({.name = "plain"}).map());
  EXPECT_TRUE(shows(svg, "<title>fetched mid, "));
  EXPECT_TRUE(shows(svg, white));
  EXPECT_FALSE(shows(plain, "fetched"));
  EXPECT_FALSE(shows(plain, white));
}

TEST(MemoryMapSvg, TextIsEscaped) {
  MapCase c = map_case({.name = "escaped"});
  c.input.title = "<script>\"a\" & 'b'</script>\x01";
  c.input.device[0].name = "weights & <more>";
  c.input.host[0].name = "<optimizer>";
  const std::string svg = to_svg(c.map());
  EXPECT_EQ(XmlCheck::check(svg), "");
  EXPECT_FALSE(shows(svg, "<script"));
  EXPECT_TRUE(shows(svg, "&lt;script&gt;&quot;a&quot; &amp; &#39;b&#39;&lt;/script&gt;?"));
  EXPECT_TRUE(shows(svg, "weights &amp; &lt;more&gt;"));
}

TEST(MemoryMapSvg, SaysWhetherTheStepFits) {
  MapCase c = map_case({.name = "budget"});
  const std::int64_t used = c.map().used();
  EXPECT_FALSE(shows(to_svg(c.map()), "on the device</text>"));
  for (const auto& [available, said] :
       {std::pair{used / 2, ": the step does not fit</text>"},
        std::pair{used + used / 4, "on the device</text>"},
        std::pair{100 * used, "on the device, far above (not to scale)</text>"}}) {
    c.input.available = available;
    const std::string svg = to_svg(c.map());
    EXPECT_TRUE(shows(svg, said)) << said;
    EXPECT_EQ(outside(svg), "") << said;
    EXPECT_EQ(shows(svg, ">free<"), available > used) << said;
    EXPECT_EQ(shows(svg, "on a device of"), available < used) << said;
  }
}

std::vector<double> heights_of(const std::string& svg, const std::string& text_with) {
  std::vector<double> heights;
  const std::regex label("<text " + text_with);
  for (auto it = std::sregex_iterator(svg.begin(), svg.end(), label); it != std::sregex_iterator();
       ++it)
    heights.push_back(std::stod((*it)[1]));
  std::sort(heights.begin(), heights.end());
  return heights;
}

// Labels of tenants that are too thin for them make room for each other, beside the plots.
TEST(MemoryMapSvg, LabelsDoNotOverlap) {
  for (const bool small_first : {false, true}) {
    MapCase c = map_case({.name = "crowded"});
    c.input.device.clear();
    c.input.host.clear();
    for (int i = 0; i < 12; ++i) {
      c.input.device.push_back({fmt::format("small {}", i), 1 << 20});
      c.input.host.push_back({fmt::format("host {}", i), 1 << 10});
    }
    for (auto* tenants : {&c.input.device, &c.input.host})
      tenants->insert(small_first ? tenants->end() : tenants->begin(),
                      {"large", std::int64_t{1} << 40});
    const std::string svg = to_svg(c.map());
    EXPECT_EQ(outside(svg), "");
    const std::vector<double> heights = heights_of(svg, "x=\"949\" y=\"([0-9.]+)\""),
                              axis = heights_of(svg, "[^>]*y=\"([0-9.]+)\"[^>]*>0%<");
    ASSERT_GE(heights.size(), 28u);
    ASSERT_EQ(axis.size(), 1u);
    EXPECT_GE(heights.front(), 120);  // below the bar of phases
    EXPECT_LT(heights.back(), axis[0]);
    for (std::size_t i = 1; i < heights.size(); ++i)
      EXPECT_GE(heights[i] - heights[i - 1], 15) << heights[i];
  }
}

TEST(MemoryMapSvg, IsTheSameEveryTime) {
  for (const MapCase& c : map_cases()) EXPECT_EQ(to_svg(c.map()), to_svg(c.map())) << c.name;
}

TEST(MemoryMapSvg, MillionsOfTokensStaySmallAndFast) {
  for (const bool window : {false, true}) {
    const MapCase c =
        map_case({.name = "4M",
                  .preset = "qwen2.5-7b",
                  .tokens = 4 << 20,
                  .chunk_tokens = 16384,
                  .page_tokens = 128,
                  .window = window ? 4096 : 0,
                  .retained = std::vector<Retention>(200, {Retained::kInput, Retained::kAttention}),
                  .stream = true});
    const auto start = std::chrono::steady_clock::now();
    const std::string svg = to_svg(c.map());
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    EXPECT_LT(taken.count(), 1.0);
    EXPECT_LT(svg.size(), 1'500'000u);
    EXPECT_EQ(XmlCheck::check(svg), "");
  }
}

}  // namespace
}  // namespace longstride
