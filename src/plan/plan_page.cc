#include "plan/plan_page.h"

#include <fmt/format.h>

#include "base/error.h"
#include "plan/memory_map_svg_canvas.h"

namespace longstride {
namespace {

constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --ink: #1f2933; --faint: #52606d; --page: #ffffff; --line: #d9e2ec; --band: #f5f7fa; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e7eb; --faint: #9fb3c8; --page: #16202b; --line: #334e68; --band: #1f2c3a; }
}
body { margin: 2.5rem auto; max-width: 80rem; padding: 0 1.25rem; background: var(--page); color: var(--ink);
  font: 16px/1.5 Helvetica, Arial, sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .5rem; }
h2 { font-size: 1.15rem; margin: 2.25rem 0 .5rem; }
p { max-width: 46rem; color: var(--faint); }
.table { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .6rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; padding-left: .4rem; }
.words { white-space: normal; min-width: 9rem; text-align: left; }
thead th { border-bottom-width: 2px; }
tbody tr:nth-child(even) { background: var(--band); }
details { margin: .6rem 0; border: 1px solid var(--line); border-radius: 8px; overflow: hidden; }
summary { padding: .6rem .9rem; cursor: pointer; font-weight: bold; background: var(--band); }
.picture { background: #ffffff; overflow-x: auto; }
.picture svg { display: block; margin: 0 auto; width: 100%; max-width: 1240px; min-width: 760px; height: auto; }
)";

void add_row(std::string& html, const std::vector<std::string>& cells, const char* tag) {
  html += "<tr>";
  constexpr std::size_t kLong = 20;  // lists wrap, so that the table fits on a screen
  for (const std::string& cell : cells)
    html += fmt::format("<{0}{1}>{2}</{0}>", tag, cell.size() > kLong ? " class=\"words\"" : "",
                        svg::escaped(cell));
  html += "</tr>\n";
}

}  // namespace

std::string plan_page(const PlanPageInput& input) {
  std::string html = fmt::format(
      "{}\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, "
      "initial-scale=1\">\n<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n<h1>{}</h1>\n",
      kPlanPageBegin, svg::escaped(input.title), kStyle, svg::escaped(input.title));
  for (const std::string& paragraph : input.paragraphs)
    html += fmt::format("<p>{}</p>\n", svg::escaped(paragraph));
  if (!input.header.empty()) {
    html += "<div class=\"table\"><table>\n<thead>\n";
    add_row(html, input.header, "th");
    html += "</thead>\n<tbody>\n";
    for (const std::vector<std::string>& row : input.rows) {
      LS_CHECK(row.size() == input.header.size(), "a row of {} cells under a header of {}",
               row.size(), input.header.size());
      add_row(html, row, "td");
    }
    html += "</tbody>\n</table></div>\n";
  }
  if (!input.pictures.empty())
    html += fmt::format(
        "<h2>{}</h2>\n<p>Open a line to see its picture, and point at anything in it to see what "
        "it "
        "is.</p>\n",
        svg::escaped(input.pictures_title));
  for (const PlanPicture& picture : input.pictures)
    html += fmt::format(
        "<details{}>\n<summary>{}</summary>\n<div class=\"picture\">\n{}</div>\n</details>\n",
        picture.open ? " open" : "", svg::escaped(picture.name), picture.svg);
  return html + "</body>\n</html>\n";
}

}  // namespace longstride
