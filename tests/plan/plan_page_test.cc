#include "plan/plan_page.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "plan/memory_map_svg.h"
#include "tests/plan/map_cases.h"

namespace longstride {
namespace {

PlanPageInput some_page() {
  PlanPageInput input;
  input.title = "plans of a & b";
  input.paragraphs = {"Less than <nothing>."};
  input.header = {"context", "device \"memory\""};
  input.rows = {{"32K", "<1 GiB>"}, {"64K", "2 & 3"}};
  input.pictures = {{"32K tokens & more", to_svg(map_case({.name = "first"}).map()), true},
                    {"64K <tokens>", to_svg(map_case({.name = "second"}).map()), false}};
  return input;
}

std::int64_t times(const std::string& html, const std::string& text) {
  std::int64_t n = 0;
  for (std::size_t at = html.find(text); at != html.npos; at = html.find(text, at + 1)) ++n;
  return n;
}

TEST(PlanPage, HoldsTheTableAndThePictures) {
  const PlanPageInput input = some_page();
  const std::string html = plan_page(input);
  EXPECT_TRUE(html.starts_with(kPlanPageBegin));
  EXPECT_TRUE(html.ends_with("</html>\n"));
  EXPECT_EQ(times(html, "<tr>"), 3);
  EXPECT_EQ(times(html, "<th>"), 2);
  EXPECT_EQ(times(html, "<td>"), 4);
  EXPECT_EQ(times(html, "<details open>"), 1);
  EXPECT_EQ(times(html, "<details>"), 1);
  for (const PlanPicture& picture : input.pictures) EXPECT_EQ(times(html, picture.svg), 1);
  for (const char* tag : {"table", "thead", "tbody", "tr", "th", "td", "details", "summary", "div",
                          "svg", "p", "h1", "h2", "head", "body", "html", "style"}) {
    const std::string name = tag;
    EXPECT_EQ(times(html, "<" + name + ">") + times(html, "<" + name + " "),
              times(html, "</" + name + ">"))
        << name;
  }
}

TEST(PlanPage, TextIsEscaped) {
  const std::string html = plan_page(some_page());
  for (const char* text :
       {"<title>plans of a &amp; b</title>", "<h1>plans of a &amp; b</h1>",
        "<p>Less than &lt;nothing&gt;.</p>", "<th>device &quot;memory&quot;</th>",
        "<td>&lt;1 GiB&gt;</td>", "<td>2 &amp; 3</td>", "<summary>32K tokens &amp; more</summary>",
        "<summary>64K &lt;tokens&gt;</summary>"})
    EXPECT_EQ(times(html, text), 1) << text;
}

// It is one file that runs nothing and loads nothing.
TEST(PlanPage, StandsAlone) {
  const std::string html = plan_page(some_page());
  for (const char* text :
       {"<script", "<link", "<img", "src=", "href=", "url(", "@import", "https:"})
    EXPECT_EQ(times(html, text), 0) << text;
  EXPECT_EQ(times(html, "http:"), times(html, "xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_EQ(times(html, "prefers-color-scheme: dark"), 1);
}

TEST(PlanPage, PartsMayBeAbsent) {
  const std::string html = plan_page({.title = "empty"});
  EXPECT_EQ(times(html, "<table"), 0);
  EXPECT_EQ(times(html, "<h2>"), 0);
}

TEST(PlanPage, ARowOfAnotherLengthIsRefused) {
  PlanPageInput input = some_page();
  input.rows[1].push_back("more");
  EXPECT_THROW(plan_page(input), InternalError);
}

}  // namespace
}  // namespace longstride
