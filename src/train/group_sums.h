// Gradients of a batch that is cut into groups (parallel.data): each group is summed from zero, and
// the groups' sums are added in their order. So the result depends on the number of groups alone,
// not on how many processes work on them.
//
// With P processes for G groups there are G / P rounds; in round k process r works on group
// k * P + r. After a round every process gets the groups' sums of its shard from the others
// (train/state_shards.h) and adds them. After an update it sends its shard of the weights to all.
// Each of them sends (P - 1) / P of the gradients per round, and of the trained weights per step.
//
// All processes that hold the same parameters call the same functions in the same order. Not
// thread-safe: the thread that runs the step owns it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/link.h"
#include "device/device.h"
#include "model/parameters.h"
#include "train/optimizer.h"
#include "train/state_shards.h"

namespace longstride {

struct GroupSumsBytes {
  std::int64_t device = 0, host = 0;
};

struct GroupSumsOptions {
  bool direct = false;  // the link moves device memory: nothing goes through the host
  std::int64_t piece_elements = kPieceElements;
};

class GroupSums {
 public:
  using Options = GroupSumsOptions;
  // At least two groups, a multiple of the processes. `link`: between these, null for one. Device
  // and link must outlive it.
  GroupSums(Device& device, const std::vector<ParameterSpec>& parameters, std::int64_t groups,
            comm::Link* link, const Options& options = {});
  ~GroupSums();
  GroupSums(const GroupSums&) = delete;
  GroupSums& operator=(const GroupSums&) = delete;
  // What the constructor allocates.
  static GroupSumsBytes bytes_needed(const std::vector<ParameterSpec>& parameters,
                                     std::int64_t groups, std::int64_t processes,
                                     std::int64_t shard, const Options& options = {});

  // Of this process's shard.
  const std::vector<ParameterPiece>& pieces() const { return shards_[rank_]; }
  // After the last sequence of this process's group in a round; rounds count from 0.
  void add_round(ParameterSet& gradients, std::int64_t round);
  // After the last round: the sums over all groups, of this process's shard.
  View sum_of(const ParameterSet& gradients, std::int64_t parameter) const;
  // After an update: everybody's part of the weights.
  void share_weights(ParameterSet& weights);

 private:
  // Pieces at the same place of all shards, under way to those who need them.
  struct Slot {
    std::vector<std::byte*> leaving, coming;  // by rank, in host memory; null if direct
    std::vector<std::byte*> arrived;          // by rank, on the device, if direct
    std::vector<comm::Ticket> tickets;
  };
  static bool adds_apart(std::int64_t groups, std::int64_t processes) { return groups > processes; }
  View piece_of(const ParameterSet& set, const ParameterPiece& piece) const;
  View sum_piece(const ParameterPiece& piece);
  void post_gradients(const ParameterSet& gradients, std::int64_t at, Slot& slot);
  void add_gradients(ParameterSet& gradients, std::int64_t at, bool begins, Slot& slot);
  void post_weights(const ParameterSet& weights, std::int64_t at, Slot& slot);
  void take_weights(ParameterSet& weights, std::int64_t at, Slot& slot);
  void settle(Slot& slot);
  // Starts to send a part of a set, by way of `by` unless direct; to receive one of so many bytes.
  comm::Ticket send(int to, const View& part, std::byte* by);
  comm::Ticket receive(int from, std::int64_t bytes, std::byte* direct, std::byte* by);
  // Calls post(at, slot) and then use(at, slot) for every place; the next is posted before one is
  // used.
  template <class Post, class Use>
  void for_places(const Post& post, const Use& use);

  Device& device_;
  comm::Link* link_;
  bool direct_;
  std::vector<std::vector<ParameterPiece>> shards_;
  std::size_t rank_ = 0;
  StateShard shard_;
  std::unique_ptr<ParameterSet> sums_;  // null if there is one round: then they are in place
  std::unique_ptr<Memory> scratch_;     // pieces: a sum, and what has arrived
  std::int64_t scratch_bytes_ = 0;      // of one
  std::unique_ptr<Memory> by_host_;     // pieces of both slots; null if direct
  std::array<Slot, 2> slots_;
};

}  // namespace longstride
