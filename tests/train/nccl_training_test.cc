// What training sends in device memory, over NCCL's strict twin: tensors between stages, and the
// sums of groups.
#include <gtest/gtest.h>

#include <cstring>
#include <mutex>

#include "comm/sub_link.h"
#include "device/device.h"
#include "model/presets.h"
#include "tests/train/twin_ranks.h"
#include "train/device_port.h"
#include "train/group_sums.h"

namespace longstride::comm {
namespace {

// Each stage passes on what it gets, one more; the sender is up to two messages ahead.
TEST(NcclTraining, TensorsBetweenStages) {
  for (const int ranks : {2, 3, 4})
    run_twin_ranks(ranks, [](Link& link) {
      constexpr std::int64_t kMessages = 7, kElements = 100;
      const auto device = make_device("cpu");
      const std::int64_t before = device->used_bytes(), most = kElements * 4;
      DevicePort port(*device, link, most);
      EXPECT_EQ(device->used_bytes() - before, DevicePort::bytes(most).device);
      std::vector<float> values(kElements);
      const View tensor(values.data(), DType::kF32, {kElements});
      const int rank = link.rank();
      for (std::int64_t message = 0; message < kMessages; ++message) {
        if (rank > 0 && message % 2 == 0) {  // announced two at a time
          port.start_receive(rank - 1, most);
          if (message + 1 < kMessages) port.start_receive(rank - 1, most);
        }
        if (rank == 0)
          std::ranges::fill(values, static_cast<float>(100 * message));
        else
          port.take(tensor);
        EXPECT_EQ(values[kElements - 1], static_cast<float>(100 * message + rank));
        for (float& value : values) value += 1;
        if (rank + 1 < link.size()) port.send(rank + 1, tensor);
      }
      // A stop: what was announced does not come.
      if (rank > 0) port.start_receive(rank - 1, most);
      port.finish();
      EXPECT_EQ(port.receiving(), 0);
    });
}

TEST(NcclTraining, SumsOfGroups) {
  const std::vector<ParameterSpec> specs = parameter_specs(find_preset("tiny-mistral"));
  std::int64_t elements = 0;
  for (const ParameterSpec& spec : specs) elements += spec.shape.elements();
  for (const int ranks : {2, 3})
    for (const std::int64_t rounds : {1, 2}) {
      const std::int64_t groups = ranks * rounds;
      std::mutex mutex;
      std::int64_t sent = 0;
      run_twin_ranks(ranks, [&](Link& link) {
        const auto device = make_device("cpu");
        ParameterSet gradients = ParameterSet::gradients(*device, specs),
                     weights(*device, specs, "weights");
        const std::int64_t before = device->used_bytes();
        GroupSums sums(*device, specs, groups, &link, {.direct = true});
        EXPECT_EQ(
            device->used_bytes() - before,
            GroupSums::bytes_needed(specs, groups, ranks, link.rank(), {.direct = true}).device);
        const auto value = [](std::int64_t group, std::int64_t i) {
          return 1.0f / static_cast<float>(3 + group * 7 + i % 1013);
        };
        for (std::int64_t round = 0; round < rounds; ++round) {
          for (std::int64_t p = 0; p < gradients.size(); ++p)
            for (std::int64_t i = 0; i < gradients.view(p).elements(); ++i)
              gradients.view(p).as<float>()[i] = value(round * ranks + link.rank(), i);
          sums.add_round(gradients, round);
        }
        for (const ParameterPiece& piece : sums.pieces()) {
          const StateShard shard = make_shard(specs, sums.pieces());
          const auto* from = sums.sum_of(gradients, piece.parameter).as<float>() + piece.first -
                             shard.first[static_cast<std::size_t>(piece.parameter)];
          std::memcpy(weights.view(piece.parameter).as<float>() + piece.first, from,
                      static_cast<std::size_t>(piece.elements) * sizeof(float));
        }
        sums.share_weights(weights);
        for (std::int64_t p = 0; p < weights.size(); ++p)
          for (const std::int64_t i : {std::int64_t{0}, weights.view(p).elements() - 1}) {
            float expected = value(0, i);
            for (std::int64_t group = 1; group < groups; ++group) expected += value(group, i);
            EXPECT_EQ(weights.view(p).as<float>()[i], expected)
                << specs[static_cast<std::size_t>(p)].name;
          }
        const std::lock_guard lock(mutex);
        sent += link.counters().tensors_sent();
      });
      EXPECT_EQ(sent, (ranks - 1) * (rounds + 1) * elements * 4);
    }
}

}  // namespace
}  // namespace longstride::comm
