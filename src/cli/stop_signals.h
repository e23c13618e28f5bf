// Signals that stop a run (INT, TERM, HUP, USR1). The first one requests a stop and a save, and
// acknowledges that at once; the next one ends the process without saving, but after a save in
// progress.
#pragma once

#include <vector>

namespace longstride::cli {

// Catches the signals while it lives, and leaves them ignored, since the work is then done. Signals
// that were ignored before (nohup, background jobs) stay ignored. Only one may exist at a time; its
// static functions may be called from any thread.
class StopSignals {
 public:
  // `says`: to the user, that a signal has come; of several processes one does.
  explicit StopSignals(bool says = true);
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();

  // The first signal; 0: none.
  static int received();
  // True after a second signal: nothing more is to be saved.
  static bool wants_to_leave();
  // Tells the handler whether a save is in progress.
  static void set_saving(bool saving);

 private:
  std::vector<int> caught_;
};

}  // namespace longstride::cli
