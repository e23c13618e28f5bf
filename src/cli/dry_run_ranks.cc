#include "cli/dry_run_ranks.h"

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "cli/ranks_report.h"
#include "plan/this_machine.h"
#include "train/data_check.h"
#include "train/output_check.h"
#include "train/run_data.h"
#include "train/save_room.h"

namespace longstride::cli {

void dry_run_on_ranks(const TrainConfig& config, Device& device, std::int64_t ranks,
                      const std::string& name, const std::vector<std::string>& settings,
                      const std::string& svg) {
  check_schedule_file(svg);
  RunPlan plan = plan_shapes(config, device);
  open_run_data(plan);
  plan_saves(plan);
  const MachineRates rates = rates_of_this_machine(device);
  const CorpusFacts facts = scan_data(plan);
  RanksReport report{.model = name,
                     .config = name,
                     .settings = settings,
                     .machine = rates,
                     .link = kHostLink,
                     .outlooks = {}};
  report.outlooks.push_back(
      plan_ranks_and_chunk(config, plan, device, rates, {ranks, report.link}));
  log_text(report_text(report));
  check_data(plan, facts);
  if (const PipelineOutlook& outlook = report.outlooks.front(); !outlook.fits())
    throw Error(outlook.problem, outlook.hint);
  check_fits(plan);
  check_outputs(plan);
  if (!svg.empty()) write_file_atomic(svg, picture_of(report, report.outlooks.front()));
}

}  // namespace longstride::cli
