// NcclLane: one communicator of NCCL with a stream of its own, on which its messages run one after
// the other. Every call returns at once; who calls polls.
//
// Not thread-safe: NcclLink guards it. The library and the streams must outlive it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/link_streams.h"
#include "comm/nccl_library.h"

namespace longstride::comm {

class NcclLane {
 public:
  // A part of one launch. All parts of a launch run at the same time.
  struct Part {
    bool sends = false;
    int peer = 0;  // a rank of the communicator
    void* data = nullptr;
    std::int64_t bytes = 0;  // none: nothing is asked of NCCL
  };
  // `name`: for messages, "rank 0 and rank 1".
  NcclLane(const NcclLibrary& library, LinkStreams& streams, std::string name);
  NcclLane(const NcclLane&) = delete;
  NcclLane& operator=(const NcclLane&) = delete;
  ~NcclLane() { abort(); }

  // Begins to form the communicator of so many ranks. All of them call it.
  void join(const nccl::UniqueId& id, int rank, int ranks);
  // Whether NCCL has done what it was asked for: it has joined, launched, finalized. Nothing else
  // may be asked of it before. Throws Error if it has failed.
  bool settled();

  // Asks for one launch, after what the device's stream was given so far. Requires room().
  void launch(std::span<const Part> parts);
  void launch_broadcast(int root, void* data, std::int64_t bytes);
  // Once settled after a launch: returns its number, from 1.
  std::uint64_t launched();
  bool room() { return launched_ - passed_ < kMarks || has_passed(launched_ - kMarks + 1); }
  std::uint64_t launches() const { return launched_; }
  // Whether launch `number` has run, and so all before it.
  bool has_passed(std::uint64_t number);
  bool idle() { return has_passed(launched_); }
  // How many have.
  std::uint64_t count_passed();
  // The device's stream waits for it.
  void compute_waits(std::uint64_t number);

  // The orderly end: finalize on all ranks, settled, then destroy. Requires idle().
  void finalize();
  void destroy();
  // Ends what runs, without waiting for others. May be called in any state, and again. No buffer is
  // written any more once drain() has returned, which must not be called before all lanes are
  // aborted: their streams may wait for each other.
  void abort() noexcept;
  void drain() noexcept;

 private:
  static constexpr std::uint64_t kMarks = 64;  // launches under way
  LinkStreams::Mark mark_of(std::uint64_t number) const { return marks_[number % kMarks]; }

  const NcclLibrary& library_;
  LinkStreams& streams_;
  std::string name_;
  nccl::Comm* comm_ = nullptr;
  LinkStreams::Stream stream_;
  std::vector<LinkStreams::Mark> marks_;
  std::uint64_t launched_ = 0, passed_ = 0;
};

}  // namespace longstride::comm
