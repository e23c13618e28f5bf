#include "api/train_run.h"

#include <utility>

#include "api/record_sink.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "train/data_check.h"
#include "train/describe_plan.h"
#include "train/output_check.h"
#include "train/trainer.h"

namespace longstride::api {
namespace {

class ListenerSink final : public RunSink {
 public:
  explicit ListenerSink(const RunListener& listener) : listener_(listener) {}
  void on_progress(const StepProgress& progress) override {
    if (listener_.on_progress) listener_.on_progress(progress);
  }
  void on_save(const std::filesystem::path& path) override {
    log_info("saved {}", path.string());
    if (listener_.on_save) listener_.on_save(path);
  }

 private:
  const RunListener& listener_;
};

OrderedJson beginning(const Trainer& trainer) {
  const RunPlan& plan = trainer.plan();
  const RunNeeds& needs = plan.needs;
  return {{"config", config_to_json(plan.config)},
          {"completed_steps", trainer.completed_steps()},
          {"trainable_parameters", plan.model.trainable_parameters()},
          {"device", plan.numerics.device},
          {"bytes_device", needs.total()},
          {"bytes_host", needs.host_total()},
          {"bytes_disk", needs.disk_total()}};
}

}  // namespace

bool train(const TrainConfig& config, const ResumeChoice& resume, const RunListener& listener) {
  if (config.device.threads > 0) set_thread_count(static_cast<int>(config.device.threads));
  const std::unique_ptr<Device> device = make_device(config.device.name);
  RunPlan plan = plan_run(config, *device, find_resume_point(config.checkpoint.directory, resume));
  log_text(summarize(plan, std::nullopt));
  check_fits(plan);
  check_outputs(plan);
  DataScan scan(plan);
  ListenerSink told(listener);
  Trainer trainer(std::move(plan), *device, {&told});
  if (listener.on_start) listener.on_start(beginning(trainer));
  RecordSink records(
      trainer.plan(), trainer.completed_steps(),
      [](const std::string& line) { log_info("{}", line); },
      [&](const OrderedJson& line) {
        const bool eval = line.contains("kind");
        if (eval && listener.on_eval) listener.on_eval(line);
        if (!eval && listener.on_step) listener.on_step(line);
      });
  trainer.add_sink(records);
  RunControl control;
  control.should_stop = listener.should_stop;
  control.before_first_update = [&] { scan.wait(control.should_stop); };
  return trainer.run(control);
}

}  // namespace longstride::api
