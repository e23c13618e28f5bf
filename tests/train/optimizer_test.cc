// The optimizer: its results, and that they are the same wherever its state is kept.
#include <gtest/gtest.h>

#include <cmath>

#include "base/files.h"
#include "model/presets.h"
#include "tests/data/temp_directory.h"
#include "tests/train/optimizer_fixture.h"
#include "train/checkpoint.h"
#include "train/run_plan.h"

namespace longstride {
namespace {

// Smaller than most parameters, larger than several, larger than all; and the default.
constexpr std::int64_t kSliceSizes[] = {64, 192, 1088, std::int64_t{4} << 20, 0};

TEST(OptimizerTest, TheFirstUpdateByHand) {
  const auto device = make_cpu_device();
  const ModelConfig config = optimizer_model();
  Trained trained(*device, config, DType::kF32, {});
  ParameterSet before(*device, config, DType::kF32, "before");
  std::copy_n(trained.weights.data(), trained.weights.bytes(), before.data());
  trained.update(1, 1);
  // At the first step the moments' corrections leave g / |g|, except for epsilon.
  const OptimizerConfig options;
  std::int64_t decayed = 0;
  for (std::int64_t i = 0; i < before.size(); ++i) {
    const bool decay = before.specs()[static_cast<std::size_t>(i)].decay;
    decayed += decay ? 1 : 0;
    const double keep = decay ? 1 - 1e-2 * options.weight_decay : 1;
    for (std::int64_t e = 0; e < before.view(i).elements(); ++e) {
      const double g = trained.gradients.view(i).as<float>()[e];
      if (std::abs(g) < 1e-2) continue;
      EXPECT_NEAR(trained.weights.view(i).as<float>()[e],
                  keep * before.view(i).as<float>()[e] - 1e-2 * (g > 0 ? 1 : -1), 1e-4);
    }
  }
  EXPECT_GT(decayed, 0);
  EXPECT_LT(decayed, before.size());
}

TEST(OptimizerTest, TheSameBitsEverywhere) {
  const TempDirectory disk;
  const auto device = make_cpu_device();
  const ModelConfig config = optimizer_model();
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    Trained resident(*device, config, dtype, {});
    EXPECT_EQ(resident.optimizer->has_masters(), dtype != DType::kF32);
    const std::string start = resident.bytes();
    resident.update(1, 5);
    EXPECT_NE(resident.bytes(), start);
    for (const std::int64_t slice : kSliceSizes)
      for (const StateOptions& place : {on_host(slice), on_disk(disk.path(), slice),
                                        split(disk.path(), slice, config, dtype)}) {
        const std::string what = fmt::format("{}, slices of {}, {} bytes of host", name_of(dtype),
                                             slice, place.host_bytes);
        Trained moved(*device, config, dtype, place);
        EXPECT_EQ(moved.bytes(), start) << what;
        moved.update(1, 2);
        (void)moved.bytes();  // as a checkpoint between updates
        moved.update(3, 3);
        EXPECT_EQ(moved.bytes(), resident.bytes()) << what;
      }
  }
}

TEST(OptimizerTest, TakesWhatItSays) {
  const TempDirectory disk;
  const auto device = make_cpu_device();
  const ModelConfig config = optimizer_model();
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    ParameterSet weights(*device, config, dtype, "weights");
    std::vector<StateOptions> places = {StateOptions{}};
    for (const std::int64_t slice : kSliceSizes) {
      places.push_back(on_host(slice));
      places.push_back(on_disk(disk.path(), slice));
      places.push_back(split(disk.path(), slice, config, dtype));
    }
    for (const StateOptions& place : places) {
      const StateBytes needed = Optimizer::bytes_needed(weights.specs(), {}, place);
      const std::int64_t before = device->allocated_bytes();
      Optimizer optimizer(weights, {}, place);
      EXPECT_EQ(device->allocated_bytes() - before,
                needed.device + needed.host + size_of(DType::kF64));
      EXPECT_EQ(optimizer.state().bytes().device, needed.device);
      EXPECT_EQ(optimizer.state().bytes().host, needed.host);
      EXPECT_EQ(optimizer.state().bytes().disk, needed.disk);
      EXPECT_EQ(needed.disk > 0, place.place == StatePlace::kDisk);
      if (place.place == StatePlace::kDevice) continue;
      // At most four slices are on the device at once.
      const std::int64_t
          per = dtype == DType::kF32 ? 8 : 12,
          all = Optimizer::bytes_needed(weights.specs(), {}, on_host(place.slice_elements)).host;
      if (place.slice_elements > 0) {
        EXPECT_EQ(needed.device, std::min(4 * place.slice_elements * per, all));
      } else {
        EXPECT_NEAR(static_cast<double>(needed.device), 0.25 * static_cast<double>(all),
                    64.0 * 4 * static_cast<double>(per));
      }
    }
  }
}

// If everything fits in host memory, nothing is on disk; with a byte less, one slice.
TEST(OptimizerTest, HostMemoryIsFilledBeforeTheDisk) {
  const TempDirectory disk;
  const ModelConfig config = optimizer_model();
  const std::vector<ParameterSpec> specs = parameter_specs(config, DType::kBF16);
  constexpr std::int64_t kSlice = 1024, kBlock = kSlice * 12, kBuffers = 12 * kBlock;
  const auto needed = [&](std::int64_t host_bytes) {
    return Optimizer::bytes_needed(specs, {}, on_disk(disk.path(), kSlice, host_bytes));
  };
  const std::int64_t all = Optimizer::bytes_needed(specs, {}, on_host(kSlice)).host,
                     slices = (all + kBlock - 1) / kBlock;
  ASSERT_GT(slices, 14);
  EXPECT_EQ(needed(all).disk, 0);
  EXPECT_EQ(needed(all).host, all);
  EXPECT_EQ(needed(0).disk, slices * kBlock);
  EXPECT_EQ(needed(0).host, kBuffers);
  EXPECT_EQ(needed(kBuffers + kBlock - 1).disk, slices * kBlock);
  EXPECT_EQ(needed(kBuffers + kBlock).disk, (slices - 1) * kBlock);
  EXPECT_EQ(needed(kBuffers + 2 * kBlock).host, kBuffers + 2 * kBlock);
  for (std::int64_t host = 0; host < all; host += 4096)
    EXPECT_LE(needed(host).host, std::max(host, kBuffers));
}

TEST(OptimizerTest, SlicesAreMultiplesOf64) {
  const auto device = make_cpu_device();
  const ModelConfig config = optimizer_model();
  ParameterSet weights(*device, config, DType::kF32, "weights");
  EXPECT_ANY_THROW(Optimizer(weights, {}, on_host(100)));
}

// Saved after three updates in one place, loaded in another, and two updates more.
TEST(OptimizerTest, CheckpointsFitEveryPlace) {
  const auto device = make_cpu_device();
  const ModelConfig config = find_preset("tiny-qwen2");
  const TempDirectory disk;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const StateOptions places[] = {{},
                                   on_host(1088),
                                   on_host(0),
                                   on_disk(disk.path(), 1088),
                                   on_disk(disk.path(), 0),
                                   split(disk.path(), 4096, config, dtype)};
    Trained straight(*device, config, dtype, {});
    straight.update(1, 5);
    std::string first_file;
    for (const StateOptions& from : places) {
      const TempDirectory directory;
      Trained saving(*device, config, dtype, from);
      saving.update(1, 3);
      const std::int64_t before = device->allocated_bytes();
      TrainState state;
      state.step = 3;
      state.config = OrderedJson::object();
      const std::filesystem::path saved =
          save_checkpoint(directory.path(),
                          {state, config, tensors_in_place(saving.weights, *saving.optimizer), {}});
      EXPECT_EQ(device->allocated_bytes(), before);
      const std::string file = read_text(saved / "state/optimizer.safetensors");
      if (first_file.empty()) first_file = file;
      EXPECT_EQ(file, first_file);
      for (const StateOptions& to : places) {
        Trained resumed(*device, config, dtype, to);
        // Earlier reads must not be mistaken for loaded values.
        resumed.optimizer->state().read(kFirstMoment, 0, [](const auto&) {});
        ModelDirectory::open(saved).load(resumed.weights);
        load_optimizer(saved, resumed.weights, *resumed.optimizer);
        EXPECT_EQ(resumed.bytes(), saving.bytes());
        resumed.update(4, 2);
        EXPECT_EQ(resumed.bytes(), straight.bytes());
      }
    }
  }
}

RunPlan plan_with(std::int64_t available, std::int64_t host_available, const std::string& where) {
  RunPlan plan;
  plan.config.memory.optimizer = where;
  plan.needs.weights = plan.needs.gradients = 1 << 20;
  (where == "host"   ? plan.needs.optimizer_host
   : where == "disk" ? plan.needs.optimizer_disk
                     : plan.needs.optimizer) = 6 << 20;
  plan.needs.available = available;
  plan.needs.host_available = host_available;
  return plan;
}

std::string refusal(const RunPlan& plan) {
  try {
    check_fits(plan);
  } catch (const Error& e) {
    return std::string(e.what()) + " | " + e.hint();
  }
  return "";
}

TEST(OptimizerTest, RefusedWhereThereIsNoRoom) {
  EXPECT_EQ(refusal(plan_with(8 << 20, 0, "device")), "");
  EXPECT_EQ(refusal(plan_with(2 << 20, 6 << 20, "host")), "");
  const std::string host = refusal(plan_with(2 << 20, 5 << 20, "host"));
  EXPECT_NE(host.find("needs 6.00 MiB of host memory and 5.00 MiB are free: optimizer 6.00 MiB"),
            std::string::npos)
      << host;
  EXPECT_NE(host.find("memory.optimizer"), std::string::npos) << host;
  const std::string device = refusal(plan_with(7 << 20, 1 << 30, "device"));
  EXPECT_NE(device.find("needs 8.00 MiB and the device has 7.00 MiB free"), std::string::npos)
      << device;
  EXPECT_NE(device.find("set memory.optimizer to \"host\" or \"disk\""), std::string::npos)
      << device;
  const std::string neither = refusal(plan_with(7 << 20, 5 << 20, "auto"));
  EXPECT_NE(neither.find("too much for the host, which has 5.00 MiB free"), std::string::npos)
      << neither;
  RunPlan plan = plan_with(2 << 20, 1 << 30, "disk");
  plan.needs.step.disk_pages = 1 << 20;
  plan.needs.disk_available = 7 << 20;
  EXPECT_EQ(refusal(plan), "");
  plan.needs.disk_available = (7 << 20) - 1;
  plan.config.memory.disk_path = "/disk";
  const std::string disk = refusal(plan);
  for (const char* part : {"needs 7.00 MiB on disk at memory.disk_path /disk", "are free",
                           "optimizer 6.00 MiB, pages 1.00 MiB", "raise memory.host"})
    EXPECT_NE(disk.find(part), std::string::npos) << disk;
  plan.config.memory.disk = plan.needs.disk_available;
  EXPECT_NE(refusal(plan).find("memory.disk allows 7.00 MiB"), std::string::npos);
}

}  // namespace
}  // namespace longstride
