// What the lanes of a warp do together: shuffles, votes, products of small matrices, copies to
// shared memory that arrive later.
#include <cstring>

#include "tests/cuda_twin/handlers.h"
#include "tests/cuda_twin/lanes.h"

namespace longstride::twin {
namespace {

using Words = std::array<std::uint32_t, kLanes>;

Words words(Warp& w, Operand o) {
  Words all;
  std::memcpy(all.data(), w.lanes<std::uint32_t>(o), sizeof(all));
  return all;
}

enum class Shuffle : std::uint8_t { kUp, kDown, kButterfly, kIndex };

// from: value, lane or offset, clamp, mask.
template <Shuffle kMode>
void shuffle(Warp& w, const Instruction& i, std::uint32_t lanes) {
  const Words values = words(w, i.from[0]);
  if (kMode == Shuffle::kButterfly && lanes == kAllLanes && i.results == 1) {
    const Words offsets = words(w, i.from[1]), clamps = words(w, i.from[2]);
    std::uint32_t unlike = 0;  // whether they are those of sums over all lanes
    for (std::size_t l = 0; l < kLanes; ++l)
      unlike |= (offsets[l] ^ offsets[0]) | (clamps[l] ^ 31u) | (offsets[l] & ~31u);
    if (unlike == 0) {
      auto* const to = w.lanes<std::uint32_t>(i.to[0]);
      for (std::size_t l = 0; l < kLanes; ++l) to[l] = values[l ^ offsets[0]];
      return;
    }
  }
  each_lane(lanes, [&](int l) {
    const int by = static_cast<int>(w.value(i.from[1], l) & 31);
    const auto c = static_cast<int>(w.value(i.from[2], l));
    const int segment = c >> 8 & 31, clamp = c & 31;
    const int last = (l & segment) | (clamp & ~segment);
    int from = l;
    bool good = true;
    if (kMode == Shuffle::kUp) {
      from = l - by;
      good = from >= last;
    } else if (kMode == Shuffle::kDown) {
      from = l + by;
      good = from <= last;
    } else if (kMode == Shuffle::kButterfly) {
      from = l ^ by;
      good = from <= last;
    } else {
      from = (l & segment) | (by & ~segment);
      good = from <= last;
    }
    if (!good) from = l;
    if ((lanes >> from & 1) == 0) throw Fault("a shuffle reads a lane that takes no part");
    w.set(i.to[0], l, values[static_cast<std::size_t>(from)]);
    if (i.results > 1) w.set(i.to[1], l, good ? 1 : 0);
  });
}

void vote(Warp& w, const Instruction& i, std::uint32_t lanes) {
  const std::uint32_t set = w.predicate(i.from[0]) & lanes;
  each_lane(lanes, [&](int l) {
    w.set(i.to[0], l,
          i.mode == 0   ? set
          : i.mode == 1 ? static_cast<std::uint32_t>(set != 0)
                        : static_cast<std::uint32_t>(set == lanes));
  });
}

template <class T, bool kAdds>
void reduce(Warp& w, const Instruction& i, std::uint32_t lanes) {
  const T* const x = w.lanes<T>(i.from[0]);
  T sum = x[std::countr_zero(lanes)];
  for (std::uint32_t rest = lanes & (lanes - 1); rest != 0; rest &= rest - 1) {
    const T v = x[std::countr_zero(rest)];
    sum = kAdds ? static_cast<T>(static_cast<std::uint32_t>(sum) + static_cast<std::uint32_t>(v))
                : std::max(sum, v);
  }
  each_lane(lanes, [&](int l) { w.set(i.to[0], l, static_cast<std::uint32_t>(sum)); });
}

// Products of tiles of 8 by 8, row by row: a is two rows of two tiles, b two tiles of columns, c
// two tiles. Most of the twin's time is spent here.
struct Tiles {
  alignas(32) float a[2][2][8][8], b[2][8][8], c[2][8][8];
};

void add_products(Tiles& t) {
  using Row = float __attribute__((vector_size(32)));
  Row columns[2][8];
  for (int k = 0; k < 16; ++k)
    for (int n = 0; n < 8; ++n) columns[k / 8][k % 8][n] = t.b[k / 8][n][k % 8];
  for (int r = 0; r < 16; r += 4) {  // four sums at a time hide the latency of an addition
    Row sums[4];
    std::memcpy(sums, t.c[r / 8][r % 8], sizeof(sums));
    for (int k = 0; k < 16; ++k)
      for (int i = 0; i < 4; ++i)
        sums[i] += t.a[r / 8][k / 8][r % 8 + i][k % 8] * columns[k / 8][k % 8];
    std::memcpy(t.c[r / 8][r % 8], sums, sizeof(sums));
  }
}

// A register of a warp holds two elements a lane: a tile's rows, one after another.
void unpack_tile(Warp& w, Operand from, float (&tile)[8][8]) {
  std::uint16_t halves[64];
  std::memcpy(halves, w.lanes<std::uint32_t>(from), sizeof(halves));
  std::uint32_t floats[64];
  for (int n = 0; n < 64; ++n) floats[n] = std::uint32_t{halves[n]} << 16;
  std::memcpy(tile, floats, sizeof(floats));
}

// mma.sync m16n8k16 with BF16 factors: four results, a (4), b (2), c (4).
void multiply_matrices(Warp& w, const Instruction& i, std::uint32_t) {
  Tiles tiles;
  auto& [a, b, c] = tiles;
  for (std::size_t half = 0; half < 2; ++half) {
    for (std::size_t t = 0; t < 2; ++t) unpack_tile(w, i.from[2 * t + half], a[half][t]);
    unpack_tile(w, i.from[4 + half], b[half]);
    const auto *const even = w.lanes<float>(i.from[6 + 2 * half]), *const odd = w.lanes<float>(
                                                                       i.from[7 + 2 * half]);
    for (int l = 0; l < kLanes; ++l) {
      c[half][l / 4][l % 4 * 2] = even[l];
      c[half][l / 4][l % 4 * 2 + 1] = odd[l];
    }
  }
  add_products(tiles);
  for (std::size_t half = 0; half < 2; ++half) {
    auto *const even = w.lanes<float>(i.to[2 * half]), *const odd =
                                                           w.lanes<float>(i.to[2 * half + 1]);
    for (int l = 0; l < kLanes; ++l) {
      even[l] = c[half][l / 4][l % 4 * 2];
      odd[l] = c[half][l / 4][l % 4 * 2 + 1];
    }
  }
}

// ldmatrix m8n8 of 16-bit elements: lane 8 m + r names row r of matrix m.
template <bool kTransposed>
void load_matrices(Warp& w, const Instruction& i, std::uint32_t) {
  for (int m = 0; m < i.results; ++m) {
    std::uint16_t rows[8][8];
    for (int r = 0; r < 8; ++r)
      std::memcpy(
          rows[r],
          w.shared(w.value(i.from[0], 8 * m + r) + static_cast<std::uint64_t>(i.offset), 16), 16);
    for (int l = 0; l < kLanes; ++l) {
      const int r = l / 4, c = l % 4 * 2;
      const std::uint32_t low = kTransposed ? rows[c][r] : rows[r][c];
      const std::uint32_t high = kTransposed ? rows[c + 1][r] : rows[r][c + 1];
      w.set(i.to[static_cast<std::size_t>(m)], l, low | high << 16);
    }
  }
}

// from: shared address, global address, bytes, and maybe how many of them to read.
void copy_to_shared(Warp& w, const Instruction& i, std::uint32_t lanes) {
  each_lane(lanes, [&](int l) {
    const auto bytes = static_cast<std::uint32_t>(w.value(i.from[2], l));
    const auto taken = i.sources > 3 ? static_cast<std::uint32_t>(w.value(i.from[3], l)) : bytes;
    const std::byte* const from = taken == 0 ? nullptr : w.global(w.value(i.from[1], l), bytes);
    w.copy_later(l, w.value(i.from[0], l), from, bytes, taken);
  });
}

void add_in_shared(Warp& w, const Instruction& i, std::uint32_t lanes) {
  each_lane(lanes, [&](int l) {
    std::byte* const at = w.shared(w.value(i.from[0], l) + static_cast<std::uint64_t>(i.offset),
                                   sizeof(std::uint32_t));
    std::uint32_t v = 0;
    std::memcpy(&v, at, sizeof(v));
    w.set(i.to[0], l, v);
    v += static_cast<std::uint32_t>(w.value(i.from[1], l));
    std::memcpy(at, &v, sizeof(v));
  });
}

}  // namespace

Meaning warp_operation_of(const std::vector<std::string>& name) {
  const auto has = [&](const char* part) {
    for (const std::string& p : name)
      if (p == part) return true;
    return false;
  };
  const std::string& op = name.front();
  Meaning m;
  if (op == "shfl") {
    m.results = {Width::k32, Width::kPredicate};
    m.sources.assign(4, Width::k32);
    m.run = has("up")     ? shuffle<Shuffle::kUp>
            : has("down") ? shuffle<Shuffle::kDown>
            : has("bfly") ? shuffle<Shuffle::kButterfly>
                          : shuffle<Shuffle::kIndex>;
  } else if (op == "vote") {
    m.results = {has("ballot") ? Width::k32 : Width::kPredicate};
    m.sources = {Width::kPredicate, Width::k32};
    m.run = vote;
  } else if (op == "redux") {
    m.results = {Width::k32};
    m.sources = {Width::k32, Width::k32};
    if (has("add")) m.run = reduce<std::uint32_t, true>;
    if (has("max")) m.run = has("s32") ? reduce<std::int32_t, false> : reduce<std::uint32_t, false>;
  } else if (op == "mma" && has("m16n8k16") && has("bf16") && has("row") && has("col")) {
    m.results.assign(4, Width::k32);
    m.sources.assign(10, Width::k32);
    m.run = multiply_matrices;
  } else if (op == "ldmatrix" && has("m8n8") && has("b16")) {
    m.results.assign(4, Width::k32);
    m.sources = {Width::k32};
    m.run = has("trans") ? load_matrices<true> : load_matrices<false>;
  } else if (op == "cp" && has("async")) {
    if (has("commit_group")) {
      m.run = [](Warp& w, const Instruction&, std::uint32_t lanes) { w.commit_copies(lanes); };
    } else if (has("wait_all")) {
      m.run = [](Warp& w, const Instruction&, std::uint32_t lanes) {
        w.wait_for_copies(lanes, 0, true);
      };
    } else if (has("wait_group")) {
      m.sources = {Width::k32};
      m.run = [](Warp& w, const Instruction& i, std::uint32_t lanes) {
        w.wait_for_copies(
            lanes, static_cast<std::uint32_t>(w.value(i.from[0], std::countr_zero(lanes))), false);
      };
    } else {
      m.sources = {Width::k32, Width::k64, Width::k32, Width::k32};
      m.run = copy_to_shared;
    }
  } else if (op == "atom" && has("shared") && has("add") && has("u32")) {
    m.results = {Width::k32};
    m.sources = {Width::k32, Width::k32};
    m.run = add_in_shared;
  }
  return m;
}

}  // namespace longstride::twin
