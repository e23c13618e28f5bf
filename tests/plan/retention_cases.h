// What tests of the retention's choice compare it with: the costs of every tensor written out one
// by one, the greedy choice, and all choices.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "model/presets.h"
#include "model/retained_activations.h"
#include "plan/retention_choice.h"

namespace longstride {

struct RetentionCase {
  ModelConfig config;
  NumericsRecord numerics;
  SequenceLayout layout;
  std::int64_t keep_chunks = 1;
  RetentionRoom room = {};
  RecomputeRates rates = {};

  RetentionChoice choose() const {
    return choose_retention(config, numerics, layout, keep_chunks, room, rates);
  }
};

// A tensor of one place.
struct CaseTensor {
  std::size_t place = 0;
  std::int64_t bytes = 0;
  double seconds = 0;
  Retained name = Retained::kInput;
};

inline std::vector<CaseTensor> tensors_of(const RetentionCase& c) {
  const auto D = static_cast<double>(c.config.hidden_size),
             F = static_cast<double>(c.config.ffn_size),
             Q = static_cast<double>(c.config.query_heads * c.config.head_size);
  std::vector<CaseTensor> tensors;
  for (std::int64_t chunk = 0; chunk < c.layout.chunks() - c.keep_chunks; ++chunk)
    for (std::int64_t layer = 0; layer < c.config.layers; ++layer) {
      const auto T = static_cast<double>(c.layout.chunk_size(chunk)),
                 earlier = static_cast<double>(c.layout.chunk_begin(chunk)),
                 window = static_cast<double>(c.config.windows[static_cast<std::size_t>(layer)]);
      double keys = earlier + T / 2;
      if (c.numerics.sparse.is_sparse(layer))
        keys = std::min(earlier, static_cast<double>(c.numerics.sparse.budget(layer) *
                                                     c.layout.page_tokens)) +
               T / 2;
      else if (window > 0)
        keys = std::min(keys, window);
      const auto add = [&](Retained name, double flops, double rate) {
        const RetainedLayout alone(c.config, c.numerics.compute, c.layout.chunk_tokens, {{name}});
        tensors.push_back({static_cast<std::size_t>(chunk * c.config.layers + layer), alone.bytes(),
                           flops / rate, name});
      };
      if (layer > 0) add(Retained::kInput, 2 * T * F * D, c.rates.products);
      add(Retained::kQ, 2 * T * D * Q, c.rates.products);
      add(Retained::kAttention, 4 * Q * T * keys, c.rates.attention);
      add(Retained::kMid, 2 * T * Q * D, c.rates.products);
      add(Retained::kGate, 2 * T * D * F, c.rates.products);
      add(Retained::kUp, 2 * T * D * F, c.rates.products);
    }
  return tensors;
}

// Bytes that each place's arithmetic hides.
inline std::vector<std::int64_t> hidden_of(const std::vector<CaseTensor>& tensors, double copies) {
  std::vector<double> seconds;
  for (const CaseTensor& t : tensors) {
    seconds.resize(std::max(seconds.size(), t.place + 1));
    seconds[t.place] += t.seconds;
  }
  std::vector<std::int64_t> hidden;
  for (const double s : seconds) hidden.push_back(static_cast<std::int64_t>(s * copies / 2));
  return hidden;
}

// Seconds saved by what is worth most per byte first, on the device and then on the host.
inline double greedy_seconds(std::vector<CaseTensor> tensors, std::vector<std::int64_t> hidden,
                             RetentionRoom room) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const CaseTensor& a, const CaseTensor& b) {
    return a.seconds / static_cast<double>(a.bytes) > b.seconds / static_cast<double>(b.bytes);
  });
  double saved = 0;
  for (const CaseTensor& t : tensors) {
    if (t.bytes <= room.device) {
      room.device -= t.bytes;
    } else if (t.bytes <= room.host && t.bytes <= hidden[t.place]) {
      room.host -= t.bytes;
      hidden[t.place] -= t.bytes;
    } else {
      continue;
    }
    saved += t.seconds;
  }
  return saved;
}

// Tries every tier of every tensor from `next` on.
inline double best_seconds(const std::vector<CaseTensor>& tensors,
                           std::vector<std::int64_t>& hidden, RetentionRoom room,
                           std::size_t next = 0) {
  if (next == tensors.size()) return 0;
  const CaseTensor& t = tensors[next];
  double best = 0;
  if (t.bytes <= room.device)
    best = t.seconds + best_seconds(tensors, hidden, {room.device - t.bytes, room.host}, next + 1);
  if (t.bytes <= room.host && t.bytes <= hidden[t.place]) {
    hidden[t.place] -= t.bytes;
    best = std::max(best, t.seconds + best_seconds(tensors, hidden,
                                                   {room.device, room.host - t.bytes}, next + 1));
    hidden[t.place] += t.bytes;
  }
  return std::max(best, best_seconds(tensors, hidden, room, next + 1));
}

// The choice keeps to all capacities, and adds up. Sums in another order differ by rounding.
inline void expect_sound(const RetentionCase& c, const RetentionChoice& choice) {
  const std::vector<CaseTensor> tensors = tensors_of(c);
  std::vector<std::int64_t> left = hidden_of(tensors, c.rates.copies);
  std::int64_t device = 0, host = 0;
  double seconds = 0;
  for (const CaseTensor& t : tensors) {
    const bool stays = choice.across_episodes.at(t.place).has(t.name),
               leaves = !choice.offloaded.empty() && choice.offloaded.at(t.place).has(t.name);
    EXPECT_FALSE(stays && leaves);
    if (stays) device += t.bytes;
    if (leaves) {
      host += t.bytes;
      left[t.place] -= t.bytes;
    }
    if (stays || leaves) seconds += t.seconds;
  }
  EXPECT_EQ(device, choice.bytes);
  EXPECT_EQ(host, choice.host_bytes);
  EXPECT_LE(device, c.room.device);
  EXPECT_LE(host, c.room.host);
  for (const std::int64_t bytes : left) EXPECT_GE(bytes, 0);
  EXPECT_NEAR(seconds, choice.saved_seconds, 1e-9 * seconds);
  EXPECT_LE(choice.saved_seconds, choice.most_seconds * (1 + 1e-9));
}

inline RetentionCase case_of_7b(std::int64_t context, const RetentionRoom& room) {
  constexpr std::int64_t kChunk = 4096, kPage = 128;
  RetentionCase c{.config = find_preset("qwen2.5-7b"),
                  .numerics = {},
                  .layout = {context, kChunk, kPage, {0}},
                  .room = room};
  c.numerics.chunk_tokens = kChunk;
  c.numerics.page_tokens = kPage;
  c.numerics.compute = DType::kBF16;
  return c;
}

// Windows, sparse layers, rates and room at random.
inline RetentionCase random_case(std::mt19937& random, std::int64_t layers, std::int64_t chunks) {
  const auto number = [&](std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random);
  };
  RetentionCase c = case_of_7b(4096 * (chunks + 1) - 128 * number(0, 8), {});
  c.config.layers = layers;
  c.config.ffn_size = 1024 * number(2, 20);
  c.config.windows.assign(static_cast<std::size_t>(layers), 0);
  for (std::int64_t& window : c.config.windows)
    if (number(0, 2) == 0) window = 2048 * number(1, 4);
  if (number(0, 2) == 0)
    for (std::int64_t layer = 0; layer < layers; ++layer)
      c.numerics.sparse.budgets.push_back(number(0, 1) == 0 ? SparseLayers::kNone : number(1, 64));
  c.rates.copies = 5e9 * static_cast<double>(number(1, 60));
  c.rates.attention = 20e12 * static_cast<double>(number(1, 40));
  std::int64_t all = 0;
  for (const CaseTensor& t : tensors_of(c)) all += t.bytes;
  c.room = {number(0, all * 2 / 3), number(1, all * 2 / 3)};
  return c;
}

}  // namespace longstride
