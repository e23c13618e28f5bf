// A block of threads of the twin: warps that run in an order drawn at random, each to its next
// barrier. Lanes of a warp that branch apart run apart, lowest instruction first, until they meet;
// now and then some lanes fall behind before an access to memory.
// Throws Fault for what a GPU would refuse or leave undefined: an access outside of allocations or
// across an alignment, a shuffle without the lanes that it names, a barrier not all warps reach.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <vector>

#include "tests/cuda_twin/kernel.h"

namespace longstride::twin {

struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Dim3 {
  std::uint32_t x = 1, y = 1, z = 1;
};

// Generic addresses of memory that is not global.
inline constexpr std::uint64_t kSharedWindow = std::uint64_t{1} << 60;
inline constexpr std::uint64_t kParameterWindow = std::uint64_t{1} << 61;

struct Block {
  const Kernel* kernel = nullptr;
  const std::byte* parameters = nullptr;
  std::vector<std::byte> shared;
  Dim3 at, threads, blocks;
};

class Warp {
 public:
  Warp(Block& block, int number, std::uint32_t lanes);

  template <class T>
  T* lanes(Operand o) {
    return reinterpret_cast<T*>(file_.data() + o.at);
  }
  std::uint32_t& predicate(Operand o) { return *lanes<std::uint32_t>(o); }
  std::uint64_t value(Operand o, int lane) {
    if (o.width == Width::k64) return lanes<std::uint64_t>(o)[lane];
    if (o.width == Width::k32) return lanes<std::uint32_t>(o)[lane];
    if (o.width == Width::k16) return lanes<std::uint16_t>(o)[lane];
    return predicate(o) >> lane & 1;
  }
  void set(Operand o, int lane, std::uint64_t v) {
    if (o.width == Width::k64)
      lanes<std::uint64_t>(o)[lane] = v;
    else if (o.width == Width::k32)
      lanes<std::uint32_t>(o)[lane] = static_cast<std::uint32_t>(v);
    else if (o.width == Width::k16)
      lanes<std::uint16_t>(o)[lane] = static_cast<std::uint16_t>(v);
    else
      predicate(o) = (predicate(o) & ~(1u << lane)) | static_cast<std::uint32_t>(v & 1) << lane;
  }

  // Host memory behind an address of that space; `bytes` is a power of two.
  std::byte* global(std::uint64_t address, std::uint32_t bytes) {
    if (address < low_ || address + bytes > high_ || (address & (bytes - 1)) != 0)
      find_range(address, bytes);
    return reinterpret_cast<std::byte*>(address);
  }
  std::byte* shared(std::uint64_t address, std::uint32_t bytes) {
    address &= kSharedWindow - 1;
    if ((address & (bytes - 1)) != 0 || address + bytes > shared_bytes_)
      refuse(address, bytes, shared_bytes_, "shared memory");
    return shared_ + address;
  }
  const std::byte* shared_data() const { return shared_; }
  std::size_t shared_bytes() const { return shared_bytes_; }
  const std::byte* parameter(std::uint64_t address, std::uint32_t bytes) const {
    address &= kParameterWindow - 1;
    if ((address & (bytes - 1)) != 0 || address + bytes > block_.kernel->parameter_bytes)
      refuse(address, bytes, block_.kernel->parameter_bytes, "parameters");
    return block_.parameters + address;
  }
  std::byte* generic(std::uint64_t address, std::uint32_t bytes) {
    if ((address & kSharedWindow) != 0) return shared(address, bytes);
    if ((address & kParameterWindow) != 0) return const_cast<std::byte*>(parameter(address, bytes));
    return global(address, bytes);
  }

  // Copies to shared memory that are under way: they arrive when the lane waits for them.
  void copy_later(int lane, std::uint64_t to, const std::byte* from, std::uint32_t bytes,
                  std::uint32_t taken);
  void commit_copies(std::uint32_t lanes);
  void wait_for_copies(std::uint32_t lanes, std::uint32_t groups_left, bool all);

  // Begins another block; `seed`: of which lanes fall behind.
  void restart(std::uint64_t seed);
  // Runs to the next barrier (true) or to the end (false).
  bool run();
  const Instruction& barrier() const { return block_.kernel->code[groups_.front().pc]; }
  void pass_barrier() { ++groups_.front().pc; }
  std::uint32_t alive() const { return alive_; }
  std::uint32_t launched() const { return launched_; }
  bool done() const { return alive_ == 0; }

 private:
  struct Group {
    std::uint32_t pc = 0, lanes = 0;
    bool waits = false;        // for other lanes of the warp
    std::uint32_t behind = 0;  // others come first for so many instructions
  };
  struct Copy {
    int lane = 0;
    std::uint32_t group = 0, bytes = 0;
    std::uint64_t to = 0;
    std::byte data[16];
  };
  [[noreturn]] void fail(const std::string& what) const;
  [[noreturn]] void refuse(std::uint64_t address, std::uint32_t bytes, std::size_t all,
                           const char* what) const;
  void find_range(std::uint64_t address, std::uint32_t bytes);
  bool next_group();
  void let_some_fall_behind();

  Block& block_;
  std::vector<std::byte> file_;
  std::vector<Group> groups_;  // the one that runs is first
  std::uint32_t launched_, alive_ = 0;
  int number_;
  std::uint64_t random_ = 0;
  std::uint32_t accesses_left_ = 0;   // until lanes fall behind
  std::uint64_t low_ = 0, high_ = 0;  // the allocation that was used last
  std::byte* shared_ = nullptr;       // of the block
  std::size_t shared_bytes_ = 0;
  std::vector<Copy> copies_;
  std::uint32_t committed_[kLanes] = {};
};

// Runs one block; `order` draws the warps' turns.
void run_block(Block& block, std::vector<Warp>& warps, std::uint64_t order);

}  // namespace longstride::twin
