// A kernel as the twin runs it: its PTX, decoded once. A warp's registers are arrays of 32 lanes in
// one block of memory (the register file); constants and special registers are registers too, so
// that an instruction only knows offsets.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace longstride::twin {

class Warp;
struct Instruction;

inline constexpr int kLanes = 32;
inline constexpr std::uint32_t kAllLanes = 0xFFFFFFFFu;

// What one lane holds. A predicate is one bit per lane, in one 32-bit word.
enum class Width : std::uint8_t { kPredicate, k16, k32, k64 };

constexpr std::uint32_t bytes_of(Width w) {
  return w == Width::kPredicate ? 4
         : w == Width::k16      ? 2 * kLanes
         : w == Width::k32      ? 4 * kLanes
                                : 8 * kLanes;
}

// In four bytes, since code is read all the time.
struct Operand {
  std::uint32_t at : 30 = 0;  // in the register file, in bytes
  Width width : 2 = Width::k32;
};

using Handler = void (*)(Warp&, const Instruction&, std::uint32_t lanes);

enum class Control : std::uint8_t {
  kNone,       // every lane for itself
  kConverged,  // needs all lanes of the mask `together` at once
  kBranch,
  kReturn,
  kBarrier,  // of the block; a handler, if there is one, runs when all warps are there
};

struct Instruction {
  Handler run = nullptr;
  Control control = Control::kNone;
  bool guarded = false, unless = false;  // runs in lanes where the guard is set (unless: is not)
  bool reads_or_writes = false;          // memory
  std::uint8_t results = 0, sources = 0;
  std::uint8_t mode = 0;  // as the handler reads it
  Operand guard, together;
  std::int64_t offset = 0;   // of an address
  std::uint32_t target = 0;  // of a branch
  std::array<Operand, 4> to = {};
  std::array<Operand, 10> from = {};
};

enum Special : std::uint8_t {  // x, y and z of each
  kThread,
  kThreads = 3,
  kBlock = 6,
  kBlocks = 9,
  kLane = 12,
  kWarp,
  kSpecials,
};

struct Parameter {
  std::uint32_t at = 0, bytes = 0;
};

struct Kernel {
  std::string name;
  std::vector<Parameter> parameters;
  std::uint32_t parameter_bytes = 0;
  std::uint32_t shared_bytes = 0;  // static; dynamic memory follows, aligned to 1024
  std::uint32_t most_threads = 1024;
  std::uint32_t register_bytes = 0;
  struct Constant {
    Operand to;
    std::uint64_t value = 0;
  };
  std::vector<Constant> constants;
  std::array<Operand, kSpecials> specials;  // of no width where the kernel does not read them
  std::vector<Instruction> code;
  std::vector<std::string> lines;  // of the code, for messages
};

}  // namespace longstride::twin
