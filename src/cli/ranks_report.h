// What `plan --ranks` and `train --dry-run --ranks` say of a run on several ranks: tables, JSON,
// pictures.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "train/pipeline_outlook.h"

namespace longstride::cli {

struct RanksReport {
  std::string model;                   // how the user named it
  std::string config = "CONFIG.toml";  // file of the run
  // What the command line says beside it: settings ("a.b=c"), a context, a chunk.
  std::vector<std::string> settings = {};
  bool names_context = false, names_chunk = false;
  MachineRates machine;  // of a rank
  PipelineLink link;
  double price = 0;  // of all ranks, an hour; 0: not given
  std::vector<PipelineOutlook> outlooks;
};

// Refuses a file that is not to be overwritten by a picture of a schedule (--svg); empty: none.
void check_schedule_file(const std::string& svg);

std::string report_text(const RanksReport& report);
OrderedJson report_to_json(const RanksReport& report);
std::string picture_of(const RanksReport& report, const PipelineOutlook& outlook);
std::string report_page(const RanksReport& report);

}  // namespace longstride::cli
