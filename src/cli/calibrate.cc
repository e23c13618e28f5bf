// longstride calibrate: measures the rates that predictions of a step's time are made from, and
// caches them for this machine.
#include <memory>

#include "base/files.h"
#include "base/log.h"
#include "base/output_file.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/usage.h"
#include "plan/calibrate.h"
#include "plan/this_machine.h"

namespace longstride::cli {
namespace {

struct Options {
  std::string device = "auto", out;
  bool json = false;
  CalibrationOptions run;
};

bool is_rates(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return json.is_object() && json.contains("peak_flops") && json.contains("copies");
}

std::string described(const MachineRates& m) {
  const auto tera = [](double rate) { return fmt::format("{:.3g} TFLOP/s", rate * 1e-12); };
  const auto giga = [](double rate) { return fmt::format("{:.3g} GB/s", rate * 1e-9); };
  const AttentionRates& a = m.attention;
  std::string text;
  const auto line = [&](const char* what, const std::string& value) {
    text += fmt::format("{:<34} {}\n", what, value);
  };
  line("products", tera(m.products.peak));
  line("loss head", tera(m.loss_head));
  line("attention, earlier keys",
       tera(a.earlier_forward) + ", backward " + tera(a.earlier_backward));
  line("attention, the chunk itself", tera(a.own_forward) + ", backward " + tera(a.own_backward));
  line("attention, window", tera(a.window_forward) + ", backward " + tera(a.window_backward));
  line("attention, selected pages",
       tera(a.selected_forward) + ", backward " + tera(a.selected_backward));
  line("page scores", tera(m.page_scores));
  line("memory", giga(m.memory));
  line("update", giga(m.update));
  line("copies", fmt::format("{} from the host, {} to it, {} both", giga(m.copies.from_host),
                             giga(m.copies.to_host), giga(m.copies.both)));
  line("disk",
       fmt::format("read {}, write {}", giga(m.copies.disk_read), giga(m.copies.disk_write)));
  line("host sleep", fmt::format("{:.0f} us longer than asked for", m.host_sleep * 1e6));
  return text;
}

int run_calibrate(const Options& o) {
  if (!o.out.empty())
    check_output_file(o.out, {"--out", "the rates of a machine", is_rates, std::size_t{1} << 20});
  const std::unique_ptr<Device> device = make_device(o.device);
  const Calibration made = calibrate(*device, estimated_rates(*device), o.run);
  const std::string json = dump_json(to_json(made.rates), 2) + "\n";
  if (!o.out.empty()) write_file_atomic(o.out, json);
  const auto cached = cache_calibration(*device, made.rates);
  log_info("{} measured in {:.1f} s{}", device->name(), made.seconds,
           cached ? fmt::format(", cached in {}", cached->string()) : ", not cached");
  if (o.run.disk_path.empty())
    log_info("the disk was not measured, so its rates are estimates: add --disk-path");
  return print_output(o.json ? json : described(made.rates));
}

}  // namespace

void add_calibrate(CLI::App& app, Action& action) {
  auto o = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("calibrate", "measure how fast this machine is, for predictions");
  command->add_option("--seconds", o->run.seconds, "about how long it may take")
      ->check(finite_number() & CLI::PositiveNumber)
      ->capture_default_str();
  command
      ->add_option("--disk-path", o->run.disk_path,
                   "a directory on the disk that pages go to, which is measured too")
      ->check(not_empty());
  command->add_option("--out", o->out, "also write the rates to this file")->check(not_empty());
  command->add_flag("--json", o->json, "print the rates as JSON");
  add_device_option(*command, o->device);
  command->callback([o, &action] { action = [o] { return run_calibrate(*o); }; });
}

}  // namespace longstride::cli
