#include "cli/stop_signals.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <string_view>

namespace longstride::cli {
namespace {

std::atomic<int> first_signal{0};
std::atomic<bool> again{false}, saving_now{false}, silent{false};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free,
              "a signal handler takes no locks");

// printf is not async-signal-safe.
void say(std::string_view text) {
  if (silent) return;
  if (::write(STDERR_FILENO, text.data(), text.size()) < 0) return;  // stderr is closed
}

void handle(int signal) {
  const int error = errno;
  if (first_signal == 0) {
    first_signal = signal;
    say("\nstopping, then saving; again to leave without saving\n");
  } else {
    again = true;
    if (saving_now) {
      say("\na save is under way and is finished first; then the program ends\n");
    } else {
      // Delivered as soon as this handler returns.
      std::signal(signal, SIG_DFL);
      ::raise(signal);
    }
  }
  errno = error;
}

}  // namespace

StopSignals::StopSignals(bool says) {
  silent = !says;
  first_signal = 0;
  again = saving_now = false;
  struct sigaction action {};
  action.sa_handler = handle;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) sigaddset(&action.sa_mask, signal);
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    struct sigaction before {};
    sigaction(signal, nullptr, &before);
    if (before.sa_handler == SIG_IGN) continue;
    sigaction(signal, &action, nullptr);
    caught_.push_back(signal);
  }
}

StopSignals::~StopSignals() {
  // The work is done: a late signal must not change the outcome.
  for (const int signal : caught_) std::signal(signal, SIG_IGN);
}

int StopSignals::received() { return first_signal; }
bool StopSignals::wants_to_leave() { return again; }
void StopSignals::set_saving(bool saving) { saving_now = saving; }

}  // namespace longstride::cli
