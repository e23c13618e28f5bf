#include "plan/storage_program.h"

#include <coin/CbcHeuristic.hpp>
#include <coin/CbcModel.hpp>
#include <coin/CoinBuild.hpp>
#include <coin/CoinError.hpp>
#include <coin/OsiClpSolverInterface.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace longstride {
namespace {

struct Item {
  std::size_t request = 0;
  std::int64_t bytes = 0, begin = 0, end = 0;
  bool meets(const Item& other) const { return begin < other.end && other.begin < end; }
};

std::vector<Item> items_of(const WorkspaceTrace& trace) {
  std::vector<Item> items;
  for (std::size_t i = 0; i < trace.size(); ++i)
    if (trace[i].bytes > 0)
      items.push_back({i, aligned_bytes(trace[i].bytes), trace[i].begin, trace[i].end});
  return items;
}

// Sets of items alive at one time that are part of no larger one.
std::vector<std::vector<int>> largest_live_sets(const std::vector<Item>& items) {
  struct Event {
    std::int64_t time;
    bool starts;
    int item;
  };
  std::vector<Event> events;
  for (int i = 0; i < static_cast<int>(items.size()); ++i) {
    events.push_back({items[static_cast<std::size_t>(i)].begin, true, i});
    events.push_back({items[static_cast<std::size_t>(i)].end, false, i});
  }
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return std::tie(a.time, a.starts, a.item) < std::tie(b.time, b.starts, b.item);
  });
  std::vector<std::vector<int>> sets;
  std::vector<int> live;
  bool grew = false;
  for (const Event& e : events) {
    if (e.starts) {
      live.push_back(e.item);
    } else {
      if (grew) sets.push_back(live);
      live.erase(std::find(live.begin(), live.end(), e.item));
    }
    grew = e.starts;
  }
  return sets;
}

// The program. Columns: the arena's size, the addresses, then one binary per pair a < b that is 1
// if a lies below b. Bytes are scaled, so that coefficients stay near 1e4.
class Program {
 public:
  Program(const WorkspaceTrace& trace, std::vector<Item> items, std::int64_t below)
      : trace_(trace), items_(std::move(items)), below_(below) {
    for (const Item& item : items_) unit_ = std::gcd(unit_, item.bytes);
    step_ = std::max(static_cast<double>(unit_), static_cast<double>(below) * 1e-4);
    add_columns();
    add_pairs();
    add_live_sets();
    solver_.OsiSolverInterface::addRows(rows_);
  }

  OsiClpSolverInterface& solver() { return solver_; }
  // Every address can be a multiple of this, so sizes of arenas differ by it at least.
  std::int64_t unit() const { return unit_; }
  double scaled(std::int64_t bytes) const { return static_cast<double>(bytes) / step_; }
  // The least number of units that is not below a scaled value, tolerances aside.
  std::int64_t bytes_at_least(double value) const {
    const double units = (value - 1e-5) * step_ / static_cast<double>(unit_);
    return static_cast<std::int64_t>(std::ceil(units - 1e-3)) * unit_;
  }

  // The solver's addresses are exact only to its tolerance. What they say is which lies below
  // which; placed in that order, tensors get addresses that are sound.
  Placement placement(const double* columns) const {
    std::vector<std::size_t> order(items_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return columns[1 + a] < columns[1 + b]; });
    for (std::size_t& i : order) i = items_[i].request;
    return place_in_order(trace_, order);
  }

  void set_columns(const Placement& placement, double* columns) const {
    // The same arena upside down, if that is the half which the program looks at.
    const Item& largest = items_[largest_];
    const bool turned = 2 * placement.offsets[largest.request] + largest.bytes > below_ - unit_;
    columns[0] = scaled(placement.bytes);
    std::vector<std::int64_t> at(items_.size());
    for (std::size_t i = 0; i < items_.size(); ++i) {
      at[i] = placement.offsets[items_[i].request];
      if (turned) at[i] = placement.bytes - at[i] - items_[i].bytes;
      columns[1 + i] = scaled(at[i]);
    }
    for (std::size_t p = 0; p < pairs_.size(); ++p)
      columns[1 + items_.size() + p] = at[pairs_[p].first] < at[pairs_[p].second] ? 1 : 0;
  }

 private:
  void add_columns() {
    const CoinPackedVector empty;
    const std::int64_t most = below_ - unit_;
    solver_.addCol(empty, scaled(live_bytes_bound(trace_)), scaled(most), 1.0);
    for (std::size_t i = 1; i < items_.size(); ++i)
      if (items_[i].bytes > items_[largest_].bytes) largest_ = i;
    for (std::size_t i = 0; i < items_.size(); ++i) {
      // An arena may be turned upside down: the largest tensor is in the lower half.
      const double room = scaled(most - items_[i].bytes);
      solver_.addCol(empty, 0.0, i == largest_ ? room / 2 : room, 0.0);
      const int columns[] = {0, address(i)};
      const double values[] = {1, -1};
      rows_.addRow(2, columns, values, scaled(items_[i].bytes));
    }
  }

  void add_pairs() {
    pair_of_.assign(items_.size() * items_.size(), -1);
    const double most = scaled(below_);
    for (std::size_t a = 0; a < items_.size(); ++a)
      for (std::size_t b = a + 1; b < items_.size(); ++b) {
        if (!items_[a].meets(items_[b])) continue;
        const int binary = solver_.getNumCols();
        pair_of_[a * items_.size() + b] = binary;
        pairs_.emplace_back(a, b);
        solver_.addCol(CoinPackedVector(), 0.0, 1.0, 0.0);
        solver_.setInteger(binary);
        // a's end <= b's begin + most (1 - binary), and b's end <= a's begin + most binary.
        const int columns[] = {address(b), address(a), binary};
        const double above[] = {1, -1, -most}, below[] = {-1, 1, most};
        rows_.addRow(3, columns, above, scaled(items_[a].bytes) - most);
        rows_.addRow(3, columns, below, scaled(items_[b].bytes));
      }
  }

  // Of what is alive with a tensor at one time, some lies below it and the rest above: the sums are
  // a much better bound than pairs are.
  void add_live_sets() {
    for (const std::vector<int>& set : largest_live_sets(items_))
      for (const int i : set) {
        std::vector<int> columns = {address(static_cast<std::size_t>(i))};
        std::vector<double> values = {1};
        double others = 0, fixed = 0;  // fixed: the part of the sum below that is constant
        for (const int j : set) {
          if (j == i) continue;
          const auto [low, high] = std::minmax(i, j);
          const double size = scaled(items_[static_cast<std::size_t>(j)].bytes);
          columns.push_back(pair_of_[static_cast<std::size_t>(low) * items_.size() +
                                     static_cast<std::size_t>(high)]);
          values.push_back(j < i ? -size : size);
          if (j > i) fixed += size;
          others += size;
        }
        // address - sum below >= 0
        rows_.addRow(static_cast<int>(columns.size()), columns.data(), values.data(), fixed);
        // arena - address - own size - (others - sum below) >= 0
        for (double& value : values) value = -value;
        columns.push_back(0);
        values.push_back(1);
        const double own = scaled(items_[static_cast<std::size_t>(i)].bytes);
        rows_.addRow(static_cast<int>(columns.size()), columns.data(), values.data(),
                     own + others - fixed);
      }
  }

  static int address(std::size_t item) { return static_cast<int>(item) + 1; }

  const WorkspaceTrace& trace_;
  std::vector<Item> items_;
  std::int64_t below_, unit_ = 0;
  double step_ = 1;
  std::size_t largest_ = 0;
  std::vector<int> pair_of_;  // column of a pair, or -1
  std::vector<std::pair<std::size_t, std::size_t>> pairs_;
  OsiClpSolverInterface solver_;
  CoinBuild rows_;
};

// At every node: places in the order of the addresses of the relaxed solution.
class PlaceInRelaxedOrder final : public CbcHeuristic {
 public:
  PlaceInRelaxedOrder(CbcModel& model, const Program& program)
      : CbcHeuristic(model), program_(&program) {}
  CbcHeuristic* clone() const override { return new PlaceInRelaxedOrder(*this); }
  void resetModel(CbcModel* model) override { model_ = model; }
  using CbcHeuristic::solution;
  int solution(double& objective, double* columns) override {
    const Placement placement = program_->placement(model_->solver()->getColSolution());
    const double value = program_->scaled(placement.bytes);
    if (value >= std::min(objective, model_->getCutoff())) return 0;
    program_->set_columns(placement, columns);
    objective = value;
    return 1;
  }

 private:
  const Program* program_;
};

}  // namespace

std::int64_t pairs_alive_together(const WorkspaceTrace& trace) {
  const std::vector<Item> items = items_of(trace);
  std::int64_t pairs = 0;
  for (std::size_t a = 0; a < items.size(); ++a)
    for (std::size_t b = a + 1; b < items.size(); ++b) pairs += items[a].meets(items[b]);
  return pairs;
}

StorageSolution solve_storage(const WorkspaceTrace& trace, std::int64_t below,
                              const StorageProgramLimits& limits) {
  const std::int64_t live = live_bytes_bound(trace);
  if (live >= below) return {{}, below};
  std::vector<Item> items = items_of(trace);
  LS_CHECK(!items.empty(), "nothing to place, yet fewer than {} bytes are asked for", below);
  Program program(trace, std::move(items), below);
  // No arena lies between the bound and `below`.
  if (live > below - program.unit()) return {{}, below};

  StorageSolution solution{{}, live};
  try {
    program.solver().messageHandler()->setLogLevel(0);
    CbcModel model(program.solver());
    model.setLogLevel(0);
    model.setMaximumNodes(static_cast<int>(limits.nodes));
    model.setUseElapsedTime(true);
    model.setMaximumSeconds(limits.seconds);
    const double less = 0.999 * program.scaled(program.unit());
    model.setCutoffIncrement(less);
    model.setAllowableGap(less);
    PlaceInRelaxedOrder heuristic(model, program);
    model.addHeuristic(&heuristic, "relaxed order");
    model.branchAndBound();
    if (const double* columns = model.bestSolution()) {
      Placement found = program.placement(columns);
      if (found.bytes < below) solution.placement = std::move(found);
    }
    const std::int64_t most = solution.placement ? solution.placement->bytes : below;
    const std::int64_t proven = model.isProvenInfeasible() && !model.bestSolution()
                                    ? below
                                    : program.bytes_at_least(model.getBestPossibleObjValue());
    solution.bound = std::clamp(proven, live, most);
  } catch (const CoinError&) {
    // What it found until then is lost; the caller has a placement of its own.
    return {{}, live};
  }
  return solution;
}

}  // namespace longstride
