#include "train/background_save.h"

#include <system_error>
#include <utility>

#include "base/error.h"

namespace longstride {

BackgroundSave::~BackgroundSave() { join(); }

void BackgroundSave::join() {
  if (thread_.joinable()) thread_.join();
}

SaveOutcome BackgroundSave::save_now(const SaveJob& job, const CheckpointTensors& tensors) const {
  SaveOutcome outcome{job.state.step, {}, nullptr};
  try {
    outcome.path = save_checkpoint(job.root, {job.state, config_, tensors, side_files_, adapter_});
  } catch (const Error&) {
    outcome.error = std::current_exception();
  } catch (const std::exception& e) {
    outcome.error = std::make_exception_ptr(
        Error(fmt::format("step {} could not be saved in {}: {}", job.state.step, job.root.string(),
                          e.what()),
              "earlier saves are untouched; choose another checkpoint.directory, or report this"));
  }
  return outcome;
}

void BackgroundSave::start(SaveJob job, std::unique_ptr<SaveSnapshot> snapshot) {
  LS_CHECK(!under_way(), "a save is under way already, and step {} would follow", job.state.step);
  snapshot_ = std::move(snapshot);
  done_ = false;
  const auto write = [this, job = std::move(job)] {
    outcome_ = save_now(job, snapshot_->tensors());
    done_ = true;
  };
  try {
    thread_ = std::thread(write);
  } catch (const std::system_error&) {  // the user's thread limit is reached
    write();
  }
}

std::optional<SaveOutcome> BackgroundSave::poll() {
  if (!under_way() || !done_) return std::nullopt;
  return wait();
}

std::optional<SaveOutcome> BackgroundSave::wait() {
  if (!under_way()) return std::nullopt;
  join();
  snapshot_.reset();
  return std::exchange(outcome_, {});
}

void BackgroundSave::wait_before_update() {
  if (under_way() && !snapshot_->detached()) join();
}

}  // namespace longstride
