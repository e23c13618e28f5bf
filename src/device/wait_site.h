// The places in the code where one lane waits for another. Each caller of a mover defines its own
// in its own source file:
//
//   const WaitSite kAccessAfterFetch{"pages/access-after-fetch"};
//
// All of them form a list. Tests walk it: they omit one wait at a time and must detect the missing
// order. The prefix before the slash selects the tests (tests/offload/wait_sites_test.cc).
#pragma once

namespace longstride {

// Only for namespace scope: it stays in the list until the program ends. Constructed before main;
// any thread may read it after that.
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
