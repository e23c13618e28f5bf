#include "api/record_sink.h"

#include <utility>

#include "api/record.h"
#include "base/error.h"
#include "base/log.h"

namespace longstride::api {

RecordSink::RecordSink(const RunPlan& plan, std::int64_t begin_step,
                       std::function<void(const std::string&)> print_line,
                       std::function<void(const OrderedJson&)> on_line)
    : plan_(plan),
      begin_step_(begin_step),
      print_line_(std::move(print_line)),
      on_line_(std::move(on_line)),
      file_(plan.config.metrics.file, begin_step) {}

void RecordSink::on_step(const StepReport& report) {
  StepRecord record = make_record(report, plan_);
  record.elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  record.seconds_left = record.elapsed / static_cast<double>(report.step - begin_step_) *
                        static_cast<double>(report.total_steps - report.step);
  write(record_to_json(record), record.step);
  print_line_(format_step_line(record));
}

void RecordSink::on_eval(const EvalReport& report) {
  OrderedJson line = {{"time", timestamp()}, {"kind", "eval"}, {"step", report.step}};
  line.update(to_json(report.evaluation));
  line["seconds"] = report.seconds;
  write(line, report.step);
  const TargetSums& all = report.evaluation.all();
  print_line_(fmt::format("eval after step {}  loss {:.4f}  accuracy {:.2f}%  {} targets  {:.3g} s",
                          report.step, all.mean_loss(), 100 * all.accuracy(), all.targets,
                          report.seconds));
}

void RecordSink::write(const OrderedJson& line, std::int64_t step) {
  try {
    file_.append(line);
    failing_ = false;
  } catch (const Error& e) {
    if (!failing_) log_warning("{}; the run goes on, and step {} has no line", e.what(), step);
    failing_ = true;
  }
  if (on_line_) on_line_(line);
}

}  // namespace longstride::api
