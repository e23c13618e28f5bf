#include "cli/ranks_report.h"

#include <algorithm>

#include "base/output_file.h"
#include "base/sizes.h"
#include "cli/suggest.h"
#include "cli/text_table.h"
#include "plan/pipeline_svg.h"
#include "plan/plan_page.h"

namespace longstride::cli {
namespace {

constexpr std::size_t kShownCuts = 8;

std::string gib(std::int64_t bytes) {
  return bytes == 0 ? "-" : fmt::format("{:.1f}", static_cast<double>(bytes) / (1 << 30));
}
std::string seconds(double s) { return fmt::format("{:.{}f}", s, s < 10 ? 2 : 1); }
std::string percent(double share) { return fmt::format("{:.1f}%", 100 * share); }
std::string bytes_text(std::int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

std::string layers_of(const StageOutlook& s) {
  return s.layers == 1
             ? fmt::format("layer {}", s.first_layer)
             : fmt::format("layers {} to {}", s.first_layer, s.first_layer + s.layers - 1);
}

double price_per_million(const RanksReport& report, const PipelineOutlook& o) {
  return report.price / 3600 * 1e6 / o.tokens_per_s();
}

// "pipeline 7, data 1, heads 1: 7 ranks, more of the 8 do not fit or are not faster".
std::string cut_of(const PipelineOutlook& o) {
  return fmt::format("pipeline {}, data {}, heads {}{}", o.cut.pipeline, o.cut.data, o.cut.heads,
                     o.ranks_used() < o.ranks
                         ? fmt::format(": {} ranks, more of the {} do not fit or are not faster",
                                       o.ranks_used(), o.ranks)
                         : "");
}

bool is_of_cut(const std::string& setting) {
  return setting.starts_with("parallel.pipeline=") || setting.starts_with("parallel.data=") ||
         setting.starts_with("parallel.heads=");
}

// What starts the run; empty if one process does it all.
std::string start_line(const RanksReport& report, const PipelineOutlook& o) {
  if (o.ranks_used() == 1) return "";
  std::string line = fmt::format("mpirun -np {} --bind-to none longstride train {}", o.ranks_used(),
                                 report.config);
  for (const std::string& setting : report.settings)
    if (!is_of_cut(setting)) line += " " + shell_word("--" + setting);
  line += fmt::format(" --parallel.pipeline={} --parallel.data={} --parallel.heads={}",
                      o.cut.pipeline, o.groups, o.cut.heads);
  if (report.names_context) line += fmt::format(" --training.context={}", o.context);
  if (report.names_chunk || o.shorter_chunk) line += fmt::format(" --training.chunk={}", o.chunk);
  return line;
}

TextTable cuts_table(const PipelineOutlook& o) {
  TextTable t{{"pipeline", "data", "heads", "ranks", "seconds", "idle"}, {}};
  const auto add = [&](const RankCut& cut, double step, double idle) {
    t.rows.push_back({fmt::format("{}", cut.pipeline), fmt::format("{}", cut.data),
                      fmt::format("{}", cut.heads), fmt::format("{}", cut.ranks()), seconds(step),
                      percent(idle)});
  };
  add(o.cut, o.seconds(), o.run.idle_share());
  for (const OtherCut& other : o.others)
    if (t.rows.size() < kShownCuts) add(other.cut, other.seconds, other.idle_share);
  return t;
}

std::string step_of(const RanksReport& report, const PipelineOutlook& o) {
  std::string text = fmt::format("predicted: {} s, {:.0f} tokens/s; {} of the pipeline's {} s idle",
                                 seconds(o.seconds()), o.tokens_per_s(),
                                 percent(o.run.idle_share()), seconds(o.run.seconds));
  if (o.cut.data * o.cut.heads > 1)
    text += fmt::format("; {} s for {} of gradients and weights between ranks of a stage",
                        seconds(o.exchange_seconds), bytes_text(o.exchange_bytes));
  text += fmt::format("; update {} s", seconds(o.update_seconds));
  if (report.price > 0)
    text += fmt::format("; 1M tokens cost {:.3f}", price_per_million(report, o));
  text += "\n";
  if (const std::string command = start_line(report, o); !command.empty())
    text += fmt::format("to run it: {}\n", command);
  if (!o.others.empty())
    text += fmt::format(
        "cuts that fit, the chosen one first{}:\n{}",
        o.others.size() >= kShownCuts
            ? fmt::format(" ({} slower ones left out)", o.others.size() + 1 - kShownCuts)
            : "",
        to_text(cuts_table(o)));
  return text;
}

std::string layer_range(const StageOutlook& s) {
  return fmt::format("{}-{}", s.first_layer, s.first_layer + s.layers - 1);
}

TextTable time_table(const PipelineOutlook& o) {
  TextTable t{{"stage", "layers", "seconds", "forward", "recompute", "backward", "idle", "sent on"},
              {}};
  const bool shares_heads = o.cut.heads > 1;
  if (shares_heads) t.header.insert(t.header.end(), {"exchange", "exchanged"});
  const double sequences = static_cast<double>(o.batch) / static_cast<double>(o.cut.data);
  for (std::size_t i = 0; i < o.stages.size(); ++i) {
    const StepCost& step = o.stages[i].step;
    t.rows.push_back({fmt::format("{}", i), layer_range(o.stages[i]), seconds(o.run.busy[i]),
                      seconds(sequences * step.forward.total()),
                      seconds(sequences * step.recompute.total()),
                      seconds(sequences * step.backward.total()),
                      percent(o.run.idle_share(static_cast<std::int64_t>(i))),
                      i < o.run.boundary_bytes.size() ? bytes_text(o.run.boundary_bytes[i]) : "-"});
    if (shares_heads)
      t.rows.back().insert(t.rows.back().end(), {seconds(sequences * step.exchange()),
                                                 format_bytes(sequences * step.bytes_sent)});
  }
  return t;
}

TextTable memory_table(const PipelineOutlook& o) {
  TextTable t{{"stage", "layers", "weights", "gradients", "optimizer", "pages", "page gradients",
               "activations", "workspace", "device", "of", "host", "disk"},
              {}};
  for (std::size_t i = 0; i < o.stages.size(); ++i) {
    const RunNeeds& n = o.stages[i].needs;
    const StepMemory& m = n.step;
    t.rows.push_back({fmt::format("{}", i), layer_range(o.stages[i]), gib(n.weights),
                      gib(n.gradients), gib(n.optimizer),
                      gib(m.kv_pages + m.summaries + m.wide_pages), gib(m.kv_gradient_pages),
                      gib(m.retained), gib(m.workspace + n.messages_device), gib(n.total()),
                      gib(n.available), gib(n.host_total()), gib(n.disk_total())});
  }
  return t;
}

std::string describe_machine(const RanksReport& report) {
  const MachineRates& m = report.machine;
  return fmt::format(
      "{} each, {} GiB of device memory; {:.3g} GB/s between ranks; times are {}", m.name,
      gib(m.device_bytes), report.link.bytes_per_s * 1e-9,
      m.measured ? "predicted from measured rates" : "rough: the rates are estimates");
}

std::string heading(const PipelineOutlook& o) {
  return fmt::format("{} tokens in chunks of {}, batch {}: {}", format_count(o.context),
                     format_count(o.chunk), o.batch, cut_of(o));
}

std::string problem_of(const PipelineOutlook& o) {
  return fmt::format("{} tokens do not fit on {} ranks. Of {} stages{}: {}\n  to change: {}",
                     format_count(o.context), o.ranks, o.cut.pipeline,
                     o.cut.heads > 1 ? fmt::format(" with heads shared by {}", o.cut.heads) : "",
                     o.problem, o.hint);
}

OrderedJson stage_to_json(const PipelineOutlook& o, std::size_t i) {
  const StageOutlook& s = o.stages[i];
  const RunNeeds& n = s.needs;
  const StepMemory& m = n.step;
  return {{"first_layer", s.first_layer},
          {"layers", s.layers},
          {"seconds", o.run.busy[i]},
          {"idle_share", o.run.idle_share(static_cast<std::int64_t>(i))},
          {"sequence_seconds",
           {{"forward", s.step.forward.total()},
            {"recompute", s.step.recompute.total()},
            {"backward", s.step.backward.total()},
            {"exchange", s.step.exchange()}}},
          {"sequence_bytes_exchanged", s.step.bytes_sent},
          {"update_seconds", s.update_seconds},
          {"bytes",
           {{"weights", n.weights},
            {"gradients", n.gradients},
            {"optimizer", n.optimizer},
            {"kv_pages", m.kv_pages},
            {"kv_gradient_pages", m.kv_gradient_pages},
            {"page_summaries", m.summaries},
            {"wide_pages", m.wide_pages},
            {"rope", m.rope},
            {"retained", m.retained},
            {"workspace", m.workspace},
            {"messages", n.messages_device},
            {"device", n.total()},
            {"device_available", n.available},
            {"host", n.host_total()},
            {"disk", n.disk_total()}}}};
}

OrderedJson outlook_to_json(const RanksReport& report, const PipelineOutlook& o) {
  OrderedJson json = {{"context", o.context}, {"ranks", o.ranks}, {"fits", o.fits()}};
  if (!o.fits()) {
    json["problem"] = o.problem;
    json["hint"] = o.hint;
    return json;
  }
  json["pipeline"] = o.cut.pipeline;
  json["data"] = o.cut.data;
  json["heads"] = o.cut.heads;
  json["ranks_used"] = o.ranks_used();
  json["command"] = start_line(report, o);
  json["chunk"] = o.chunk;
  json["batch"] = o.batch;
  json["stages"] = OrderedJson::array();
  for (std::size_t i = 0; i < o.stages.size(); ++i) json["stages"].push_back(stage_to_json(o, i));
  json["boundary_bytes"] = o.run.boundary_bytes;
  json["exchange_bytes"] = o.exchange_bytes;
  json["seconds"] = {{"pipeline", o.run.seconds},
                     {"exchange", o.exchange_seconds},
                     {"update", o.update_seconds},
                     {"total", o.seconds()}};
  json["idle_share"] = o.run.idle_share();
  json["others"] = OrderedJson::array();
  for (const OtherCut& other : o.others)
    json["others"].push_back({{"pipeline", other.cut.pipeline},
                              {"data", other.cut.data},
                              {"heads", other.cut.heads},
                              {"seconds", other.seconds},
                              {"idle_share", other.idle_share}});
  json["tokens_per_s"] = o.tokens_per_s();
  if (report.price > 0) json["price_per_million_tokens"] = price_per_million(report, o);
  return json;
}

}  // namespace

std::string report_text(const RanksReport& report) {
  std::string text = fmt::format("{} on {}\n", report.model, describe_machine(report));
  for (const PipelineOutlook& o : report.outlooks) {
    if (!o.fits()) {
      text += fmt::format("\n{}\n", problem_of(o));
      continue;
    }
    text += fmt::format("\n{}\n{}\n{}\nGiB:\n{}", heading(o), step_of(report, o),
                        to_text(time_table(o)), to_text(memory_table(o)));
  }
  return text;
}

OrderedJson report_to_json(const RanksReport& report) {
  OrderedJson plans = OrderedJson::array();
  for (const PipelineOutlook& o : report.outlooks) plans.push_back(outlook_to_json(report, o));
  return {{"model", report.model},
          {"machine", report.machine.name},
          {"measured_rates", report.machine.measured},
          {"link_bytes_per_s", report.link.bytes_per_s},
          {"plans", plans}};
}

std::string picture_of(const RanksReport& report, const PipelineOutlook& o) {
  const auto parts_of = [](const PipelineOutlook& of) {
    std::string text =
        of.cut.pipeline == 1 ? "one stage" : fmt::format("{} stages", of.cut.pipeline);
    if (of.cut.heads > 1) text += fmt::format(" of {} ranks", of.cut.heads);
    if (of.cut.data > 1) text += fmt::format(", one of {} pipelines", of.cut.data);
    return text;
  };
  PipelinePicture picture{
      .title = fmt::format("{}, {} tokens, {}", report.model, format_count(o.context), parts_of(o)),
      .subtitle =
          fmt::format("{}. {} in chunks of {}{}. Predicted: {} s, of which {} idle.",
                      describe_machine(report), format_count(o.context), format_count(o.chunk),
                      o.batch > o.cut.data
                          ? fmt::format(", {} sequences one after the other", o.batch / o.cut.data)
                          : "",
                      seconds(o.run.seconds), percent(o.run.idle_share())),
      .stages = {}};
  if (o.cut.heads > 1)
    picture.note = fmt::format(
        "A stage is {} ranks that share heads and do the same at the same time; boxes include what "
        "they exchange around attention.",
        o.cut.heads);
  for (const StageOutlook& s : o.stages) picture.stages.push_back(layers_of(s));
  return to_svg(o.run, picture);
}

void check_schedule_file(const std::string& svg) {
  if (svg.empty()) return;
  check_output_file(svg, {"--svg", "a schedule", [](std::string_view head) {
                            return head.starts_with(kPipelineSvgBegin);
                          }});
}

std::string report_page(const RanksReport& report) {
  PlanPageInput page{.title = fmt::format("{} on {}", report.model, report.machine.name),
                     .paragraphs = {describe_machine(report)},
                     .pictures_title = "Stages over a step"};
  page.header = {"context", "chunk", "pipeline", "data", "heads", "seconds", "tokens/s", "idle"};
  for (const PipelineOutlook& o : report.outlooks) {
    if (!o.fits()) {
      page.paragraphs.push_back(problem_of(o));
      continue;
    }
    page.rows.push_back({format_count(o.context), format_count(o.chunk),
                         fmt::format("{}", o.cut.pipeline), fmt::format("{}", o.cut.data),
                         fmt::format("{}", o.cut.heads), seconds(o.seconds()),
                         fmt::format("{:.0f}", o.tokens_per_s()), percent(o.run.idle_share())});
    if (const std::string command = start_line(report, o); !command.empty())
      page.paragraphs.push_back(fmt::format("{} tokens: {}", format_count(o.context), command));
    page.pictures.push_back(
        {format_count(o.context) + " tokens", picture_of(report, o), page.pictures.empty()});
  }
  return plan_page(page);
}

}  // namespace longstride::cli
