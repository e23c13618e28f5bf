// One HTML page about the plans of several contexts: a table, and the picture of each. It needs no
// network, no script and no other file, and is readable in light and dark mode.
#pragma once

#include <string>
#include <vector>

namespace longstride {

struct PlanPicture {
  std::string name;   // the line that is clicked to see it
  std::string svg;    // of to_svg (plan/memory_map_svg.h)
  bool open = false;  // shown from the start
};

// All text is plain: the page escapes it.
struct PlanPageInput {
  std::string title;
  std::vector<std::string> paragraphs = {};         // below the title
  std::vector<std::string> header = {};             // of the table; empty: no table
  std::vector<std::vector<std::string>> rows = {};  // each as long as the header
  std::string pictures_title = "Memory over a step";
  std::vector<PlanPicture> pictures = {};
};

// Every page begins with this, so that a program may recognise its own.
inline constexpr const char* kPlanPageBegin =
    "<!doctype html>\n<html lang=\"en\" class=\"longstride-plan\">";

std::string plan_page(const PlanPageInput& input);

}  // namespace longstride
