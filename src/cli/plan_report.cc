#include "cli/plan_report.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/sizes.h"
#include "cli/page_pools.h"
#include "cli/text_table.h"
#include "plan/allocator_model.h"
#include "plan/memory_map_svg.h"
#include "plan/plan_page.h"
#include "train/accuracy_costs.h"

namespace longstride::cli {
namespace {

using Cells = std::vector<std::string>;
using Table = TextTable;

std::string gib(std::int64_t bytes) {
  return bytes == 0 ? "-" : fmt::format("{:.1f}", static_cast<double>(bytes) / (1 << 30));
}
std::string seconds(double s) { return fmt::format("{:.{}f}", s, s < 10 ? 2 : 1); }

// What a row of the tables shows of a context: as asked, or with the settings that make it fit.
// Null if there are none.
const Outlook* shown_of(const Outlook& o) { return o.fits() ? &o : o.changed.get(); }
std::string label_of(const Outlook& o) {
  return format_count(o.context()) + (!o.fits() && o.changed != nullptr ? " *" : "");
}

// Seconds of a step, as the rows of the table split them; they add up to the total.
struct Split {
  double products = 0, attention = 0, recompute = 0, other = 0, transfers = 0, update = 0;
};
Split split_of(const Outlook& o) {
  const StepCost& c = o.step;  // of one sequence
  Split s;
  s.products =
      o.batch() * (c.forward.products + c.backward.products + c.forward.head + c.backward.head);
  s.attention = o.batch() * (c.forward.attention + c.backward.attention);
  s.recompute = o.batch() * (c.recompute.total() - c.recompute.transfers);
  s.transfers = o.batch() * c.exposed_transfers();
  s.update = o.update_seconds;
  s.other = o.seconds() - s.products - s.attention - s.recompute - s.transfers - s.update;
  return s;
}

Table time_table(const PlanReport& report) {
  Table t{{"context", "seconds", "tokens/s", "MFU"}, {}};
  if (report.price > 0) t.header.emplace_back("cost of 1M tokens");
  t.header.insert(t.header.end(), {"chunk", "products", "attention", "recompute", "other",
                                   "transfers", "update", "kept", "swapped"});
  for (const Outlook& asked : report.outlooks) {
    const Outlook* const shown = shown_of(asked);
    if (shown == nullptr) {
      Cells row(t.header.size(), "-");
      row[0] = label_of(asked);
      row[1] = "does not fit";
      t.rows.push_back(std::move(row));
      continue;
    }
    const Outlook& o = *shown;
    const Split s = split_of(o);
    Cells row = {label_of(asked), seconds(o.seconds()), fmt::format("{:.0f}", o.tokens_per_s()),
                 fmt::format("{:.0f}%", 100 * o.utilization())};
    if (report.price > 0) row.push_back(fmt::format("{:.3f}", o.price_per_million(report.price)));
    row.insert(row.end(), {format_count(o.plan.step->longest_chunk()), seconds(s.products),
                           seconds(s.attention), seconds(s.recompute), seconds(s.other),
                           seconds(s.transfers), seconds(s.update), describe_shares(o.shares.kept),
                           describe_shares(o.shares.swapped)});
    t.rows.push_back(std::move(row));
  }
  return t;
}

Table memory_table(const PlanReport& report) {
  Table t{{"context", "weights", "gradients", "optimizer", "pages", "page gradients", "activations",
           "workspace", "GPU", "of", "host pages", "host activations", "host optimizer", "disk"},
          {}};
  for (const Outlook& asked : report.outlooks) {
    const Outlook* const shown = shown_of(asked);
    if (shown == nullptr) continue;
    const RunNeeds& n = shown->plan.needs;
    const StepMemory& m = n.step;
    t.rows.push_back({label_of(asked), gib(n.weights), gib(n.gradients), gib(n.optimizer),
                      gib(m.kv_pages + m.summaries + m.wide_pages), gib(m.kv_gradient_pages),
                      gib(m.retained), gib(m.workspace), gib(n.total()), gib(n.available),
                      gib(m.host_pages), gib(m.host_activations), gib(n.optimizer_host),
                      gib(n.disk_total())});
  }
  return t;
}

std::string describe_machine(const MachineRates& m) {
  // A device that shares host memory has none beside it.
  const std::string host =
      m.host_bytes > 0 ? fmt::format(", {} GiB of host memory", gib(m.host_bytes)) : "";
  return fmt::format("{}, {} GiB of device memory{}; times are {}", m.name, gib(m.device_bytes),
                     host,
                     m.measured ? "predicted from measured rates"
                                : "rough: the rates are estimates (" + m.source +
                                      "; longstride calibrate measures them)");
}

// Below the tables: why a context does not fit, with what it would; and what its settings cost in
// accuracy.
struct Remark {
  std::vector<std::string> lines;
  std::vector<std::string> costs;
};
std::vector<Remark> remarks(const PlanReport& report) {
  std::vector<Remark> list;
  for (const Outlook& o : report.outlooks) {
    const std::string context = format_count(o.context());
    const Outlook* const shown = shown_of(o);
    Remark remark;
    if (!o.fits())
      remark.lines = {fmt::format("{} does not fit as asked: {}", context, o.problem),
                      shown == nullptr
                          ? fmt::format("to change: {}", o.hint)
                          : fmt::format("* it would fit with {}", fmt::join(o.remedies, ", "))};
    if (shown != nullptr) remark.costs = accuracy_costs(shown->plan);
    if (remark.lines.empty() && !remark.costs.empty())
      remark.lines = {context + ": what it costs in accuracy"};
    if (!remark.lines.empty()) list.push_back(std::move(remark));
  }
  return list;
}

MemoryMapInput map_input(const PlanReport& report, const Outlook& o) {
  const RunNeeds& n = o.plan.needs;
  MemoryMapInput input{.title = fmt::format("{}, {} tokens, {}", report.model,
                                            format_count(o.context()), report.machine.name),
                       .config = o.plan.model.config,
                       .compute = o.plan.numerics.compute,
                       .device = {{"weights", n.weights}, {"gradients", n.gradients}},
                       .host = {},
                       .disk = {},
                       .available = n.available,
                       .task_seconds = task_seconds(o.plan.model.config, o.plan.numerics,
                                                    *o.plan.step, report.machine)};
  const auto add = [](std::vector<NamedBytes>& list, const char* name, std::int64_t bytes) {
    if (bytes > 0) list.push_back({name, bytes});
  };
  add(input.device, "optimizer", n.optimizer);
  add(input.host, "optimizer", n.optimizer_host);
  add(input.disk, "optimizer", n.optimizer_disk);
  return input;
}

OrderedJson outlook_to_json(const PlanReport& report, const Outlook& o) {
  OrderedJson json = {{"context", o.context()}, {"fits", o.fits()}};
  if (!o.fits()) {
    json["problem"] = o.problem;
    json["hint"] = o.hint;
    json["remedies"] = o.remedies;
    if (o.changed != nullptr) json["changed"] = outlook_to_json(report, *o.changed);
    return json;
  }
  const RunNeeds& n = o.plan.needs;
  const StepMemory& m = n.step;
  const Split s = split_of(o);
  const AllocatorUse allocator = simulate_allocator(*o.plan.step);
  json["chunk"] = o.plan.step->longest_chunk();
  json["kept"] = describe_shares(o.shares.kept);
  json["swapped"] = describe_shares(o.shares.swapped);
  json["bytes"] = {{"weights", n.weights},
                   {"gradients", n.gradients},
                   {"optimizer", n.optimizer},
                   {"kv_pages", m.kv_pages},
                   {"kv_gradient_pages", m.kv_gradient_pages},
                   {"page_summaries", m.summaries},
                   {"wide_pages", m.wide_pages},
                   {"rope", m.rope},
                   {"retained", m.retained},
                   {"workspace", m.workspace},
                   {"workspace_bound", m.workspace_bound},
                   {"caching_allocator_workspace", allocator.reserved},
                   {"caching_allocator_fragmentation", allocator.fragmentation()},
                   {"device", n.total()},
                   {"device_available", n.available},
                   {"host_pages", m.host_pages},
                   {"pools", page_pools_to_json(*o.plan.step, o.plan.numerics)},
                   {"host_activations", m.host_activations},
                   {"host_optimizer", n.optimizer_host},
                   {"disk", n.disk_total()}};
  json["seconds"] = {{"products", s.products},   {"attention", s.attention},
                     {"recompute", s.recompute}, {"other", s.other},
                     {"transfers", s.transfers}, {"update", s.update},
                     {"total", o.seconds()}};
  json["accuracy"] = accuracy_costs(o.plan);
  json["tokens_per_s"] = o.tokens_per_s();
  json["mfu"] = o.utilization();
  if (report.price > 0) json["price_per_million_tokens"] = o.price_per_million(report.price);
  return json;
}

}  // namespace

std::string report_text(const PlanReport& report) {
  std::string text = fmt::format("{} on {}\n\n{}", report.model, describe_machine(report.machine),
                                 to_text(time_table(report)));
  if (const Table memory = memory_table(report); !memory.rows.empty())
    text += "\nGiB:\n" + to_text(memory);
  for (const Remark& remark : remarks(report)) {
    text += fmt::format("\n{}\n", fmt::join(remark.lines, "\n"));
    for (const std::string& cost : remark.costs) text += "  - " + cost + "\n";
  }
  return text;
}

OrderedJson report_to_json(const PlanReport& report) {
  OrderedJson plans = OrderedJson::array();
  for (const Outlook& o : report.outlooks) plans.push_back(outlook_to_json(report, o));
  return {{"model", report.model},
          {"machine", report.machine.name},
          {"measured_rates", report.machine.measured},
          {"plans", plans}};
}

std::string picture_of(const PlanReport& report, const Outlook& outlook) {
  return to_svg(make_memory_map(*outlook.plan.step, map_input(report, outlook)));
}

std::string report_page(const PlanReport& report) {
  PlanPageInput page{.title = fmt::format("{} on {}", report.model, report.machine.name),
                     .paragraphs = {describe_machine(report.machine)}};
  for (const Remark& remark : remarks(report)) {
    std::vector<std::string> sentences = remark.lines;
    sentences.insert(sentences.end(), remark.costs.begin(), remark.costs.end());
    page.paragraphs.push_back(fmt::format("{}.", fmt::join(sentences, ". ")));
  }
  const Table time = time_table(report), memory = memory_table(report);
  page.header = time.header;
  page.header.insert(page.header.end(), {"GPU GiB", "host GiB", "disk GiB"});
  for (std::size_t i = 0; i < time.rows.size(); ++i) {
    const Outlook* const shown = shown_of(report.outlooks[i]);
    Cells row = time.rows[i];
    for (const std::int64_t bytes : {shown == nullptr ? 0 : shown->plan.needs.total(),
                                     shown == nullptr ? 0 : shown->plan.needs.host_total(),
                                     shown == nullptr ? 0 : shown->plan.needs.disk_total()})
      row.push_back(gib(bytes));
    page.rows.push_back(std::move(row));
  }
  for (const Outlook& o : report.outlooks)
    if (const Outlook* const shown = shown_of(o))
      page.pictures.push_back(
          {label_of(o) + " tokens", picture_of(report, *shown), page.pictures.empty()});
  return plan_page(page);
}

}  // namespace longstride::cli
