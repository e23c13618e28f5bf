// What `longstride plan` says of several contexts: tables, JSON, pictures.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "train/outlook.h"

namespace longstride::cli {

struct PlanReport {
  std::string model;     // how the user named it
  MachineRates machine;  // with the memory that was planned for
  double price = 0;      // of the machine, an hour; 0: not given
  std::vector<Outlook> outlooks;
};

std::string report_text(const PlanReport& report);
OrderedJson report_to_json(const PlanReport& report);
std::string picture_of(const PlanReport& report, const Outlook& outlook);
std::string report_page(const PlanReport& report);

}  // namespace longstride::cli
