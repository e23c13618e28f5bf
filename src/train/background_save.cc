#include "train/background_save.h"

#include <chrono>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "comm/control.h"

namespace longstride {

BackgroundSave::~BackgroundSave() {
  given_up_ = link_ != nullptr;
  if (thread_.joinable()) thread_.join();
}

// A long file is progress: the other processes must not take this one for hung.
void BackgroundSave::join() {
  if (!thread_.joinable()) return;
  for (std::int64_t seen = -1; link_ != nullptr && !done_;) {
    if (std::exchange(seen, pieces_.load()) != pieces_) link_->progressed();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  thread_.join();
}

CheckpointContents BackgroundSave::contents(const TrainState& state,
                                            const CheckpointTensors& tensors) const {
  return {state, model_.config, tensors, model_.side_files, model_.adapter};
}

SaveOutcome BackgroundSave::save_now(const SaveJob& job, const CheckpointTensors& tensors,
                                     ShardedState* shards) const {
  SaveOutcome outcome{job.state.step, {}, nullptr};
  CheckpointContents all = contents(job.state, tensors);
  all.shards = shards;
  try {
    outcome.path = link_ == nullptr ? save_checkpoint(job.root, all)
                                    : save_on_ranks(*link_, job.root, all, model_.parameters);
  } catch (const Error&) {
    outcome.error = std::current_exception();
  } catch (const comm::RankFailed&) {
    throw;
  } catch (const std::exception& e) {
    outcome.error = std::make_exception_ptr(
        Error(fmt::format("step {} could not be saved in {}: {}", job.state.step, job.root.string(),
                          e.what()),
              "earlier saves are untouched; choose another checkpoint.directory, or report this"));
  }
  return outcome;
}

void BackgroundSave::start(SaveJob job, std::unique_ptr<SaveSnapshot> snapshot,
                           const std::exception_ptr& failed) {
  LS_CHECK(!under_way(), "a save is under way already, and step {} would follow", job.state.step);
  under_way_ = true;
  done_ = false;
  snapshot_ = std::move(snapshot);
  outcome_ = {job.state.step, {}, failed};
  if (link_ == nullptr) {
    if (failed == nullptr)
      return run([this, job = std::move(job)] { outcome_ = save_now(job, snapshot_->tensors()); });
    done_ = true;
    return;
  }
  static const CheckpointTensors kNone;
  try {
    together_.emplace(*link_, job.root,
                      contents(job.state, snapshot_ ? snapshot_->tensors() : kNone),
                      model_.parameters);
  } catch (const Error&) {
    outcome_.error = std::current_exception();
    done_ = true;
    return;
  }
  if (failed == nullptr)
    return run([this] {
      together_->write([this] {
        ++pieces_;
        if (given_up_) throw Error("the save was given up", "see why the run ended");
      });
    });
  together_->fail(failed);
  done_ = true;
}

void BackgroundSave::run(const std::function<void()>& write) {
  const auto body = [this, write] {
    write();
    done_ = true;
  };
  try {
    thread_ = std::thread(body);
  } catch (const std::system_error&) {  // the user's thread limit is reached
    body();
  }
}

std::optional<SaveOutcome> BackgroundSave::poll() {
  if (link_ != nullptr || !under_way() || !done_) return std::nullopt;
  return end();
}

std::optional<SaveOutcome> BackgroundSave::poll_together() {
  if (link_ == nullptr) return poll();
  if (!under_way() || comm::largest(*link_, done_ ? 0 : 1) != 0) return std::nullopt;
  return end();
}

std::optional<SaveOutcome> BackgroundSave::wait() {
  if (!under_way()) return std::nullopt;
  return end();
}

SaveOutcome BackgroundSave::end() {
  join();
  SaveOutcome outcome = std::exchange(outcome_, {});
  if (together_) {
    try {
      outcome.path = together_->commit();
      outcome.error = nullptr;
    } catch (const Error&) {
      outcome.error = std::current_exception();
    }
  }
  together_.reset();
  snapshot_.reset();
  under_way_ = false;
  return outcome;
}

void BackgroundSave::wait_before_update() {
  if (snapshot_ != nullptr && !snapshot_->detached()) join();
}

}  // namespace longstride
