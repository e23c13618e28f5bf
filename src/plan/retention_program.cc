#include "plan/retention_program.h"

#include <coin/CoinBuild.hpp>
#include <coin/CoinError.hpp>
#include <coin/OsiClpSolverInterface.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "plan/retention_search.h"

namespace longstride {
namespace {

constexpr int kMostRounds = 50;      // of pricing; five are usually enough
constexpr double kPrecision = 1e-9;  // of seconds, relative

// A column is a choice, and counts the places that make it. Rows: bytes on the device, on the host,
// then the places of every kind. Bytes and seconds are scaled, so that coefficients are near 1.
class Program {
 public:
  Program(const std::vector<PlaceKind>& kinds, const RetentionRoom& room)
      : kinds_(kinds), room_(room), columns_of_(kinds.size()) {
    std::int64_t bytes = 1;
    double seconds = 0;
    for (const PlaceKind& kind : kinds)
      for (const TensorWorth& tensor : kind.tensors) {
        bytes = std::max(bytes, tensor.bytes);
        seconds = std::max(seconds, tensor.seconds);
      }
    byte_ = 1 / static_cast<double>(bytes);
    if (seconds > 0) second_ = 1 / seconds;
    solver_.messageHandler()->setLogLevel(0);
    // Columns come later: what was the solution before still is one.
    solver_.setHintParam(OsiDoDualInInitial, false);
    solver_.setHintParam(OsiDoDualInResolve, false);
    CoinBuild rows;
    rows.addRow(0, nullptr, nullptr, -COIN_DBL_MAX, scaled(room.device));
    rows.addRow(0, nullptr, nullptr, -COIN_DBL_MAX, scaled(room.host));
    for (const PlaceKind& kind : kinds)
      rows.addRow(0, nullptr, nullptr, -COIN_DBL_MAX, static_cast<double>(kind.places));
    solver_.OsiSolverInterface::addRows(rows);
  }

  RetentionSolution solve(double known) {
    RetentionSolution solution{.choices = {}, .bound = relax()};
    solution.choices = whole(solver_.getColSolution());
    if (can_search(kinds_)) search(solution, known);
    return solution;
  }

 private:
  double scaled(std::int64_t bytes) const { return static_cast<double>(bytes) * byte_; }

  // Near where the two tiers together are full, with the host worth as much as the device or less.
  std::array<TierPrices, 4> first_prices() const {
    std::vector<std::pair<double, double>> worth_and_bytes;
    for (const PlaceKind& kind : kinds_)
      for (const TensorWorth& tensor : kind.tensors) {
        const auto bytes = static_cast<double>(tensor.bytes);
        worth_and_bytes.emplace_back(tensor.seconds / bytes,
                                     bytes * static_cast<double>(kind.places));
      }
    std::sort(worth_and_bytes.rbegin(), worth_and_bytes.rend());
    double price = 0, room = static_cast<double>(room_.device) + static_cast<double>(room_.host);
    for (const auto& [worth, bytes] : worth_and_bytes) {
      price = worth;
      room -= bytes;
      if (room < 0) break;
    }
    return {{{price, price}, {price * 1.001, price}, {price, price / 2}, {price * 2, 0}}};
  }

  // Solves the program, not in whole numbers, adding the choices that its prices ask for. Returns
  // the bound.
  double relax() {
    double bound = std::numeric_limits<double>::infinity();
    std::vector<PlaceChoice> wanted;
    for (const TierPrices& prices : first_prices())
      bound = std::min(bound, bound_at(prices, wanted));
    for (int round = 0; round < kMostRounds && add(wanted); ++round) {
      if (round == 0)
        solver_.initialSolve();
      else
        solver_.resolve();
      const double* rows = solver_.getRowPrice();
      const auto price = [&](int row) { return std::max(0.0, -rows[row] * byte_ / second_); };
      prices_ = {price(0), price(1)};
      wanted.clear();
      bound = std::min(bound, bound_at(prices_, wanted));
      if (bound + solver_.getObjValue() / second_ <= kPrecision * bound) break;
    }
    return bound;
  }

  // Whatever the prices, no choice saves more than the room costs and places gain. `wanted` gets
  // the choices that gain most.
  double bound_at(const TierPrices& prices, std::vector<PlaceChoice>& wanted) const {
    double bound = prices.device * static_cast<double>(room_.device) +
                   prices.host * static_cast<double>(room_.host);
    for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
      const PlaceChoice best = best_choice(kinds_, kind, prices);
      const double gain = prices.gain(best);
      bound += gain * static_cast<double>(kinds_[kind].places);
      if (gain > 0) wanted.push_back(best);
    }
    return bound;
  }

  // False if all of them are there.
  bool add(const std::vector<PlaceChoice>& wanted) {
    CoinBuild build(1);
    for (const PlaceChoice& column : wanted) {
      std::vector<int>& others = columns_of_[column.kind];
      if (std::any_of(others.begin(), others.end(), [&](int other) {
            const PlaceChoice& o = columns_[static_cast<std::size_t>(other)];
            return o.device == column.device && o.host == column.host;
          }))
        continue;
      const int rows[] = {0, 1, static_cast<int>(column.kind) + 2};
      const double values[] = {scaled(column.device_bytes), scaled(column.host_bytes), 1};
      build.addColumn(3, rows, values, 0, static_cast<double>(kinds_[column.kind].places),
                      -column.seconds * second_);
      others.push_back(static_cast<int>(columns_.size()));
      columns_.push_back(column);
    }
    if (build.numberColumns() == 0) return false;
    solver_.OsiSolverInterface::addCols(build);
    return true;
  }

  // Rounded down. The solver keeps to rows within a tolerance; here the room is exact.
  std::vector<std::vector<SharedChoice>> whole(const double* values) {
    std::vector<std::vector<SharedChoice>> choices(kinds_.size());
    RetentionRoom left = room_;
    for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
      std::int64_t places_left = kinds_[kind].places;
      for (const int index : columns_of_[kind]) {
        const PlaceChoice& column = columns_[static_cast<std::size_t>(index)];
        auto places = std::min(places_left, static_cast<std::int64_t>(values[index] + 1e-5));
        if (column.device_bytes > 0) places = std::min(places, left.device / column.device_bytes);
        if (column.host_bytes > 0) places = std::min(places, left.host / column.host_bytes);
        if (places <= 0) continue;
        places_left -= places;
        left.device -= places * column.device_bytes;
        left.host -= places * column.host_bytes;
        choices[kind].push_back({column.device, column.host, places});
        saved_ += static_cast<double>(places) * column.seconds;
      }
    }
    return choices;
  }

  void search(RetentionSolution& solution, double known) const {
    known = std::max(known, saved_);
    const auto found = search_retention(kinds_, room_, prices_, known);
    if (!found) return;
    double best = 0;
    if (!found->empty()) solution.choices.assign(kinds_.size(), {});
    for (const PlaceChoice& choice : *found) {
      solution.choices[choice.kind].push_back({choice.device, choice.host, 1});
      best += choice.seconds;
    }
    solution.bound = std::min(solution.bound, std::max(best, known) * (1 + kPrecision));
  }

  const std::vector<PlaceKind>& kinds_;
  const RetentionRoom room_;
  std::vector<PlaceChoice> columns_;
  std::vector<std::vector<int>> columns_of_;  // by kind
  TierPrices prices_;
  double byte_ = 1, second_ = 1;  // scales
  double saved_ = 0;              // by the rounded solution
  OsiClpSolverInterface solver_;
};

}  // namespace

std::optional<RetentionSolution> solve_retention(const std::vector<PlaceKind>& kinds,
                                                 const RetentionRoom& room, double known) {
  try {
    return Program(kinds, room).solve(known);
  } catch (const CoinError&) {
    return {};
  }
}

}  // namespace longstride
