// Which activations are retained where, as a linear program over places, solved by CLP. A place is
// one (chunk, layer). Most places equal others: a variable counts the places of one kind that share
// one choice of tiers. Every choice hides its own copies, so any places of the kind can have it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace longstride {

// A tensor of a place: what it takes, and what it saves on either tier.
struct TensorWorth {
  std::int64_t bytes = 0;  // above 0
  double seconds = 0;
};

struct PlaceKind {
  std::vector<TensorWorth> tensors;  // up to 8
  std::int64_t hidden = 0;           // bytes that may go to the host from each place
  std::int64_t places = 0;
};

// Bytes for activations.
struct RetentionRoom {
  std::int64_t device = 0, host = 0;
};

// Some places of a kind retain the same tensors; bit i is tensor i of the kind.
struct SharedChoice {
  unsigned device = 0, host = 0;
  std::int64_t places = 0;
};

struct RetentionSolution {
  // By kind, together at most its places; the others retain nothing. They keep to the room.
  std::vector<std::vector<SharedChoice>> choices;
  double bound = 0;  // proven: no choice saves more seconds
};

// Makes the best choice, where a choice that saves `known` seconds is there already: for a few
// places the optimum or, if that saves no more than `known`, any other. For more places it is the
// linear program's solution rounded down. A basic solution has at most two choices more than kinds,
// so few places lose theirs; the caller fills them. Nothing if the solver fails. The same input
// gives the same solution: no clock limits it. 512 kinds take about 10 ms.
std::optional<RetentionSolution> solve_retention(const std::vector<PlaceKind>& kinds,
                                                 const RetentionRoom& room, double known = 0);

}  // namespace longstride
