// The places in the code where one lane waits for another. Each caller of a mover names its own, in
// its own files:
//
//   const WaitSite kAccessAfterFetch{"pages/access-after-fetch"};
//
// All of them form a list, which tests walk: they leave out one wait after another, and must
// notice. What stands before the slash says which tests (tests/offload/wait_sites_test.cc).
#pragma once

namespace longstride {

// At namespace scope alone: it stays in the list for as long as the program runs.
class WaitSite {
 public:
  explicit WaitSite(const char* name) noexcept : name_(name), next_(first_) { first_ = this; }
  WaitSite(const WaitSite&) = delete;
  WaitSite& operator=(const WaitSite&) = delete;

  const char* name() const { return name_; }
  // The list, in no particular order; complete once main has begun.
  static const WaitSite* first() { return first_; }
  const WaitSite* next() const { return next_; }

 private:
  const char* name_;
  const WaitSite* next_;
  static inline constinit const WaitSite* first_ = nullptr;
};

}  // namespace longstride
