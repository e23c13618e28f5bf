// How sparse attention selects pages. Plain data, part of the numerics record.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace longstride {

// The score of an earlier page for a query page. A query's score of a page is its scaled product
// with the vectors of the page's summary, of which the best counts; a softmax over pages makes
// weights of them.
enum class Scoring : std::uint8_t {
  kMass,   // weights per query head, summed over heads and queries
  kFocus,  // their fourth powers, summed: a page that one query needs counts more than one that
           // many glance at
  kOomb,   // queries are summed over the heads of a group first: one weight per KV head
};
// The power of a weight in the sum, itself a power of 2.
constexpr int weight_power(Scoring scoring) { return scoring == Scoring::kFocus ? 4 : 1; }

// What stands for the keys of a page when it is scored.
enum class Summary : std::uint8_t {
  kMeans,     // means of consecutive keys
  kOutliers,  // the keys that are farthest from the mean of all, as they are, and the others' mean
};

// Every query page attends to its own chunk and to `budget` earlier pages: the forced ones, and the
// best of the others. Forced are the first `sinks` pages of the document and the last `recent`
// pages before the chunk.
struct Selection {
  std::int64_t sinks = 1, recent = 2;
  std::int64_t union_pages = 512;     // the most earlier pages that the pages of a chunk may share
  std::int64_t summary_tokens = 128;  // keys per vector of a page's summary
  Summary summary = Summary::kMeans;
  Scoring scoring = Scoring::kMass;

  std::int64_t forced() const { return sinks + recent; }
  bool operator==(const Selection&) const = default;
};

// The sparse layers of a model.
struct SparseLayers {
  static constexpr std::int64_t kNone = -1;
  Selection selection;
  std::vector<std::int64_t> budgets;  // per layer; kNone: not sparse. Empty: no layer is

  bool is_sparse(std::int64_t layer) const { return budget(layer) != kNone; }
  std::int64_t budget(std::int64_t layer) const {
    return budgets.empty() ? kNone : budgets[static_cast<std::size_t>(layer)];
  }
  // Largest of all layers; 0 if none is sparse.
  std::int64_t most_pages() const {
    std::int64_t most = 0;
    for (const std::int64_t budget : budgets) most = std::max(most, budget);
    return most;
  }
  bool any() const {
    return std::any_of(budgets.begin(), budgets.end(), [](std::int64_t b) { return b != kNone; });
  }
  bool operator==(const SparseLayers&) const = default;
};

}  // namespace longstride
