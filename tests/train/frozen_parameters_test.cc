// Frozen parameters have no gradient, no state and no update, and do not change the others' bits.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "model/presets.h"
#include "model/safetensors_reader.h"
#include "tests/data/temp_directory.h"
#include "tests/train/optimizer_fixture.h"
#include "train/checkpoint.h"

namespace longstride {
namespace {

// Every second one is frozen, from `first` on.
std::vector<ParameterSpec> every_second(const ModelConfig& config, std::size_t first,
                                        DType dtype = DType::kF32) {
  std::vector<ParameterSpec> specs = parameter_specs(config, dtype);
  for (std::size_t i = first; i < specs.size(); i += 2) specs[i].trainable = false;
  return specs;
}

bool same(const View& a, const View& b) {
  return a.present() && b.present() && a.shape() == b.shape() && a.dtype() == b.dtype() &&
         std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.bytes())) == 0;
}

TEST(FrozenParameters, TheOthersGradientsKeepTheirBits) {
  const auto device = make_cpu_device();
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const RandomCase c = random_case(seed);
    const auto all = random_weights(*device, c.config, seed);
    const StepOutcome full = run_step(*device, c, *all, c.chunk, c.page, c.keep_chunks);
    for (const std::size_t first : {0u, 1u}) {
      const std::vector<ParameterSpec> specs = every_second(c.config, first);
      ParameterSet weights(*device, specs, "weights");
      std::copy_n(all->data(), all->bytes(), weights.data());
      const std::int64_t before = device->allocated_bytes();
      const ParameterSet gradients = ParameterSet::gradients(*device, specs);
      EXPECT_EQ(device->allocated_bytes() - before, ParameterSet::gradient_bytes_needed(specs));
      EXPECT_LT(gradients.bytes(), full.gradients->bytes());
      StepRunner runner = planned_runner(
          c.config, weights, gradients, choose_numerics(*device, c.config, c.chunk, c.page),
          {.max_tokens = std::ssize(c.tokens), .keep_chunks = c.keep_chunks});
      const SequenceResult result = runner.run({c.tokens, c.targets, c.document_starts},
                                               1.0 / static_cast<double>(full.result.targets));
      EXPECT_EQ(result.loss_sum, full.result.loss_sum);
      for (std::int64_t i = 0; i < gradients.size(); ++i) {
        const ParameterSpec& spec = specs[static_cast<std::size_t>(i)];
        EXPECT_EQ(gradients.view(i).present(), spec.trainable);
        if (!spec.trainable) continue;
        EXPECT_TRUE(same(gradients.view(i), full.gradients->view(i))) << seed << " " << spec.name;
      }
    }
  }
}

TEST(FrozenParameters, TheNormCountsTheOthersAlone) {
  const auto device = make_cpu_device();
  const ModelConfig config = optimizer_model();
  for (const std::size_t first : {0u, 1u}) {
    Trained trained(*device, config, every_second(config, first), {});
    trained.update(1, 1);
    double squares = 0;
    for (std::int64_t i = 0; i < trained.gradients.size(); ++i) {
      const View g = trained.gradients.view(i);
      for (std::int64_t e = 0; g.present() && e < g.elements(); ++e)
        squares += std::pow(static_cast<double>(g.as<float>()[e]), 2);
    }
    EXPECT_NEAR(trained.optimizer->gradient_norm(trained.gradients), std::sqrt(squares), 1e-9);
    trained.gradients.view(first == 0 ? 3 : 4).as<float>()[1] = INFINITY;
    EXPECT_EQ(trained.optimizer->first_nonfinite(trained.gradients),
              trained.weights.specs()[first == 0 ? 3 : 4].name);
  }
}

TEST(FrozenParameters, StayAsTheyAreWhereverTheStateIs) {
  const TempDirectory disk;
  const auto device = make_cpu_device();
  const ModelConfig config = optimizer_model();
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const std::size_t first : {0u, 1u}) {
      const std::vector<ParameterSpec> specs = every_second(config, first, dtype);
      std::vector<ParameterSpec> trainable;
      for (const ParameterSpec& spec : specs)
        if (spec.trainable) trainable.push_back(spec);
      Trained full(*device, config, dtype, {}), start(*device, config, dtype, {});
      full.update(1, 3, 0.01);
      for (const StateOptions& place : {StateOptions{}, on_host(192), on_disk(disk.path(), 192)}) {
        Trained trained(*device, config, specs, place);
        // As much as a model with only the others.
        const StateBytes bytes = trained.optimizer->state().bytes(),
                         needed = Optimizer::bytes_needed(trainable, {}, place);
        EXPECT_EQ(bytes.device, needed.device);
        EXPECT_EQ(bytes.host, needed.host);
        EXPECT_EQ(bytes.disk, needed.disk);
        trained.update(1, 3, 0.01);
        for (std::int64_t i = 0; i < trained.weights.size(); ++i) {
          const bool trains = specs[static_cast<std::size_t>(i)].trainable;
          EXPECT_TRUE(same(trained.weights.view(i), (trains ? full : start).weights.view(i))) << i;
          for (std::int64_t column = 0; column < (dtype == DType::kF32 ? 2 : 3); ++column) {
            if (trains) {
              EXPECT_EQ(trained.state_of(column, i), full.state_of(column, i));
            } else {
              EXPECT_THROW(trained.state_of(column, i), InternalError);
            }
          }
        }
      }
    }
}

// Nothing depends on the types of frozen weights.
TEST(FrozenParameters, NeedNoMasters) {
  const auto device = make_cpu_device();
  const ModelConfig config = optimizer_model();
  std::vector<ParameterSpec> specs = every_second(config, 0);
  for (ParameterSpec& spec : specs)
    if (!spec.trainable) spec.dtype = DType::kBF16;
  EXPECT_FALSE(Trained(*device, config, specs, {}).optimizer->has_masters());
}

TEST(FrozenParameters, CheckpointsHoldTheirWeightsAlone) {
  const auto device = make_cpu_device();
  const ModelConfig config = find_preset("tiny-qwen2");
  const std::vector<ParameterSpec> specs = every_second(config, 0, DType::kBF16);
  const TempDirectory directory;
  Trained saving(*device, config, specs, {}), straight(*device, config, specs, {});
  saving.update(1, 2);
  straight.update(1, 4);
  TrainState state;
  state.step = 2;
  state.config = OrderedJson::object();
  const std::filesystem::path saved = save_checkpoint(
      directory.path(), {state, config, tensors_in_place(saving.weights, *saving.optimizer), {}});
  const SafetensorsReader reader =
      SafetensorsReader::open_file(saved / "state/optimizer.safetensors");
  for (const ParameterSpec& spec : specs)
    for (const char* column : {"first_moment.", "second_moment.", "master."})
      EXPECT_EQ(reader.contains(column + spec.name), spec.trainable) << spec.name;
  for (const StateOptions& place : {StateOptions{}, on_host(1088)}) {
    Trained resumed(*device, config, specs, place);
    ModelDirectory::open(saved).load(resumed.weights);
    load_optimizer(saved, resumed.weights, *resumed.optimizer);
    EXPECT_EQ(resumed.bytes(), saving.bytes());
    resumed.update(3, 2);
    EXPECT_EQ(resumed.bytes(), straight.bytes());
  }
}

}  // namespace
}  // namespace longstride
