// Sums over the groups of a batch have the same bits however many processes work on them.
#include "train/group_sums.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "comm/thread_link.h"
#include "device/device.h"
#include "tests/train/optimizer_fixture.h"

namespace longstride {
namespace {

// Larger than a piece, and of odd sizes.
ModelConfig summed_model() {
  ModelConfig config = optimizer_model();
  config.vocabulary = 1023;
  return config;
}

void fill(ParameterSet& set, std::int64_t seed) {
  for (std::int64_t i = 0; i < set.size(); ++i) {
    if (!set.view(i).present()) continue;
    Random random(static_cast<std::uint64_t>(seed), static_cast<std::uint64_t>(i));
    auto* values = set.view(i).as<float>();
    for (std::int64_t k = 0; k < set.view(i).elements(); ++k)
      values[k] = static_cast<float>(random.normal());
  }
}

using Values = std::vector<std::vector<float>>;  // by parameter

Values plain_sums(const std::vector<ParameterSpec>& specs, std::int64_t groups) {
  const auto device = make_device("cpu");
  ParameterSet one = ParameterSet::gradients(*device, specs);
  Values sums(specs.size());
  for (std::int64_t group = 0; group < groups; ++group) {
    fill(one, group);
    for (std::size_t i = 0; i < specs.size(); ++i) {
      if (!specs[i].trainable) continue;
      const View view = one.view(static_cast<std::int64_t>(i));
      const auto* values = view.as<float>();
      sums[i].resize(static_cast<std::size_t>(view.elements()));
      for (std::size_t k = 0; k < sums[i].size(); ++k)
        sums[i][k] = group == 0 ? values[k] : sums[i][k] + values[k];
    }
  }
  return sums;
}

struct Summed {
  Values sums, weights;
  std::vector<double> squares;
  std::vector<std::int64_t> sent;
};

// What one process does; `sums` and `squares` get what its shard has of them.
void work(const std::vector<ParameterSpec>& specs, std::int64_t groups, comm::Link* link,
          Summed& out, std::mutex& mutex) {
  constexpr std::int64_t kPiece = kSmallestCoded;
  const auto device = make_device("cpu");
  ParameterSet gradients = ParameterSet::gradients(*device, specs),
               weights(*device, specs, "weights");
  const std::int64_t processes = link ? link->size() : 1, rank = link ? link->rank() : 0;
  const std::int64_t before = device->used_bytes();
  GroupSums sums(*device, specs, groups, link, {.piece_elements = kPiece});
  const GroupSumsBytes needed =
      GroupSums::bytes_needed(specs, groups, processes, rank, {.piece_elements = kPiece});
  EXPECT_EQ(device->used_bytes() - before, needed.device + needed.host);
  for (std::int64_t round = 0; round < groups / processes; ++round) {
    fill(gradients, round * processes + rank);
    sums.add_round(gradients, round);
  }
  // An update of this shard's weights: each becomes its sum.
  for (const ParameterPiece& piece : sums.pieces()) {
    const StateShard shard = make_shard(specs, sums.pieces());
    const std::int64_t first = shard.first[static_cast<std::size_t>(piece.parameter)];
    const auto* from = sums.sum_of(gradients, piece.parameter).as<float>() + piece.first - first;
    auto* to = weights.view(piece.parameter).as<float>() + piece.first;
    std::memcpy(to, from, static_cast<std::size_t>(piece.elements) * sizeof(float));
  }
  sums.share_weights(weights);
  const std::lock_guard lock(mutex);
  Values mine(specs.size());
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (!specs[i].trainable) continue;
    const View view = weights.view(static_cast<std::int64_t>(i));
    mine[i].assign(view.as<float>(), view.as<float>() + view.elements());
  }
  if (out.weights.empty()) out.weights = mine;
  EXPECT_EQ(out.weights, mine) << "all have the same weights";
  out.sent.resize(static_cast<std::size_t>(processes));
  if (link) out.sent[static_cast<std::size_t>(rank)] = link->counters().tensors_sent();
}

Summed summed(const std::vector<ParameterSpec>& specs, std::int64_t groups, int processes) {
  Summed out;
  std::mutex mutex;
  if (processes == 1) {
    work(specs, groups, nullptr, out, mutex);
    return out;
  }
  comm::ThreadHub hub(processes);
  for (const std::exception_ptr& failed : comm::run_thread_ranks(
           hub, {}, [&](comm::MessageLink& link) { work(specs, groups, &link, out, mutex); }))
    if (failed) std::rethrow_exception(failed);
  return out;
}

TEST(GroupSums, SameBitsForEveryNumberOfProcesses) {
  std::vector<ParameterSpec> specs = parameter_specs(summed_model());
  specs[2].trainable = false;
  std::int64_t elements = 0;
  for (const ParameterSpec& spec : specs) elements += spec.trainable ? spec.shape.elements() : 0;
  constexpr std::int64_t kGroups = 6;
  const Values expected = plain_sums(specs, kGroups);
  for (const int processes : {1, 2, 3, 6}) {
    const Summed got = summed(specs, kGroups, processes);
    EXPECT_EQ(got.weights, expected) << processes;
    std::int64_t sent = 0;
    for (const std::int64_t one : got.sent) sent += one;
    const std::int64_t rounds = kGroups / processes;
    EXPECT_EQ(sent, (processes - 1) * (rounds + 1) * elements * 4) << processes;
  }
}

// Each shard's optimizer has the bits that one optimizer of all has there.
TEST(GroupSums, OptimizersOfShards) {
  const ModelConfig config = summed_model();
  const auto device = make_device("cpu");
  std::vector<OptimizerConfig> kinds = other_optimizers();
  kinds.emplace_back();
  for (const OptimizerConfig& kind : kinds)
    for (const StatePlace place : {StatePlace::kDevice, StatePlace::kHost}) {
      Trained whole(*device, config, DType::kBF16, {.place = place}, kind);
      whole.update(1, 3, 0.5);
      for (const std::int64_t shards : {2, 3}) {
        std::int64_t device_bytes = 0;
        for (std::int64_t shard = 0; shard < shards; ++shard) {
          StateOptions options{.place = place};
          options.shards = shards;
          options.shard = shard;
          Trained part(*device, config, DType::kBF16, options, kind);
          part.update(1, 3, 0.5);
          device_bytes += part.optimizer->state().bytes().device;
          EXPECT_EQ(part.optimizer->state().bytes().host,
                    Optimizer::bytes_needed(part.weights.specs(), kind, options).host);
          const StateShard& has = part.optimizer->shard();
          for (const StateTensor& t : state_tensors(has.specs, part.optimizer->state().columns())) {
            const StateColumn& column =
                part.optimizer->state().columns()[static_cast<std::size_t>(t.column)];
            const std::string all = whole.state_of(t.column, t.parameter);
            const std::int64_t first = has.first[static_cast<std::size_t>(t.parameter)];
            EXPECT_EQ(part.state_of(t.column, t.parameter),
                      all.substr(static_cast<std::size_t>(column.bytes(first)),
                                 static_cast<std::size_t>(column.bytes(has.elements(t.parameter)))))
                << name_of(kind) << ", " << t.tensor.name << ", shard " << shard;
          }
        }
        if (place == StatePlace::kDevice) {
          const std::int64_t whole_bytes = whole.optimizer->state().bytes().device;
          EXPECT_GE(device_bytes, whole_bytes);
          EXPECT_LT(device_bytes, whole_bytes + 16 * 1024);
        }
      }
    }
}

// Sums over pieces do not depend on who has them.
TEST(GroupSums, SquaresOfPieces) {
  const ModelConfig config = summed_model();
  const auto device = make_device("cpu");
  const std::vector<ParameterSpec> specs = parameter_specs(config);
  Trained whole(*device, config, specs, {});
  fill(whole.gradients, 4);
  const auto all = whole.optimizer->piece_squares(whole.optimizer->in_shard(whole.gradients),
                                                  parameter_pieces(specs));
  std::vector<double> joined;
  for (std::int64_t shard = 0; shard < 3; ++shard) {
    StateOptions options;
    options.shards = 3;
    options.shard = shard;
    Trained part(*device, config, specs, options);
    fill(part.gradients, 4);
    for (const double one :
         part.optimizer->piece_squares(part.optimizer->in_shard(part.gradients),
                                       cut_shards(specs, 3)[static_cast<std::size_t>(shard)]))
      joined.push_back(one);
  }
  EXPECT_EQ(joined, all);
  double sum = 0;
  for (const double one : all) sum += one;
  EXPECT_NEAR(std::sqrt(sum), whole.optimizer->gradient_norm(whole.gradients), 1e-9);
}

}  // namespace
}  // namespace longstride
