// Ctrl-C and its kin (INT, TERM, HUP): the first one asks a run to stop and save, and says so at
// once; the next one ends the process without saving, unless a save is under way, which is finished
// first.
#pragma once

#include <vector>

namespace longstride::cli {

// Catches the signals while it lives, and leaves them ignored: the work is done then. Those that
// were ignored before (nohup, background jobs) stay ignored. One at a time.
class StopSignals {
 public:
  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();

  // The first signal; 0: none came.
  static int received();
  // A second one came: nothing more is to be saved.
  static bool wants_to_leave();
  // Whether a save is under way. From any thread.
  static void set_saving(bool saving);

 private:
  std::vector<int> caught_;
};

}  // namespace longstride::cli
