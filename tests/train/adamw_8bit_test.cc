// Moments in 8 bits and weights without masters: against bitsandbytes, and the same bits wherever
// the state is kept and after a resume.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/files.h"
#include "model/presets.h"
#include "model/safetensors_reader.h"
#include "tensor/dynamic_code.h"
#include "tests/data/temp_directory.h"
#include "tests/train/optimizer_fixture.h"
#include "tests/where.h"
#include "train/checkpoint.h"

namespace longstride {
namespace {

// As in fixtures/make_adamw_8bit.py.
std::vector<float> noise(std::uint64_t stream, std::int64_t n) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < n; ++i) {
    std::uint64_t x = static_cast<std::uint64_t>(i) + (stream << 32);
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    x ^= x >> 31;
    const float y = static_cast<float>(static_cast<std::int64_t>(x >> 40) - (1 << 23)) * 0x1p-23f;
    values.push_back(y * y * y);
  }
  return values;
}

std::vector<float> gradient(std::uint64_t update, std::uint64_t parameter, std::int64_t n) {
  std::vector<float> g = noise(16 * update + parameter + 1, n);
  for (std::size_t i = 0; i < g.size(); ++i) {
    if (i % 7 == 0 || (i >= 512 && i < 768)) g[i] = 0;
    if (i >= 1024 && i < 1280) g[i] *= 0x1p-40f;
  }
  return g;
}

std::string bytes_of(const SafetensorsReader& reader, const std::string& name) {
  const std::span<const std::byte> bytes = reader.bytes(name);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<float> floats_of(const std::string& bytes) {
  std::vector<float> values(bytes.size() / 4);
  std::memcpy(values.data(), bytes.data(), 4 * values.size());
  return values;
}

void expect_close(const std::vector<float>& got, const std::vector<float>& want, double relative,
                  double absolute = 0) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], want[i], relative * std::fabs(double{want[i]}) + absolute) << i;
}

class AgainstBitsandbytes : public testing::Test {
 protected:
  AgainstBitsandbytes() {
    for (std::size_t i = 0; i < specs_.size(); ++i) copy(weights_, i, noise(1000 + i, size(i)));
    OptimizerConfig options;
    options.state = "8bit";
    optimizer_ = std::make_unique<Optimizer>(weights_, options);
    for (std::int64_t update = 0; update < 5; ++update) {
      for (std::size_t i = 0; i < specs_.size(); ++i)
        copy(gradients_, i, gradient(static_cast<std::uint64_t>(update), i, size(i)));
      optimizer_->update(gradients_, 1e-2, 1, update + 1);
    }
  }
  std::int64_t size(std::size_t i) const { return specs_[i].shape.elements(); }
  static void copy(ParameterSet& to, std::size_t i, const std::vector<float>& values) {
    const View view = to.view(static_cast<std::int64_t>(i));
    std::memcpy(view.data(), values.data(), static_cast<std::size_t>(view.bytes()));
  }
  std::string ours(std::int64_t column, std::int64_t parameter) {
    std::string all;
    optimizer_->state().read(column, parameter, [&](std::span<const std::byte> piece) {
      all.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    });
    return all;
  }

  const SafetensorsReader fixture_ = SafetensorsReader::open_file(
      source_directory() / "tests" / "train" / "fixtures" / "adamw_8bit.safetensors");
  const std::vector<ParameterSpec> specs_ = {{.name = "coded", .shape = {12001}},
                                             {.name = "small", .shape = {4095}}};
  std::unique_ptr<Device> device_ = make_cpu_device();
  ParameterSet weights_{*device_, specs_, "weights"}, gradients_{*device_, specs_, "gradients"};
  std::unique_ptr<Optimizer> optimizer_;
};

TEST_F(AgainstBitsandbytes, TheSameMaps) {
  EXPECT_EQ(fixture_.read_floats("map.signed"),
            std::vector<float>(kSignedCode.values.begin(), kSignedCode.values.end()));
  EXPECT_EQ(fixture_.read_floats("map.unsigned"),
            std::vector<float>(kUnsignedCode.values.begin(), kUnsignedCode.values.end()));
}

// After five updates: the codes, but for neighbours in at most 0.1% of elements.
TEST_F(AgainstBitsandbytes, TheSameCodes) {
  for (const auto& [column, name] :
       {std::pair(kFirstCode, "first_moment"), std::pair(kSecondCode, "second_moment")}) {
    const std::string got = ours(column, 0),
                      want = bytes_of(fixture_, std::string(name) + ".coded");
    ASSERT_EQ(got.size(), want.size());
    std::int64_t differ = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      const int by = static_cast<unsigned char>(got[i]) - static_cast<unsigned char>(want[i]);
      ASSERT_LE(std::abs(by), 1) << name << " " << i;
      differ += by == 0 ? 0 : 1;
    }
    EXPECT_LE(differ, std::ssize(got) / 1000) << name;
  }
}

TEST_F(AgainstBitsandbytes, TheSameMagnitudesAndWeights) {
  expect_close(floats_of(ours(kFirstAbsmax, 0)), fixture_.read_floats("first_moment_absmax.coded"),
               1e-6);
  // A remainder's magnitude of zero is 1e-38 there.
  expect_close(floats_of(ours(kSecondAbsmax, 0)),
               fixture_.read_floats("second_moment_absmax.coded"), 1e-6, 1e-37);
  expect_close(floats_of(ours(kFirstMoment, 1)), fixture_.read_floats("first_moment.small"), 1e-5,
               1e-7);
  expect_close(floats_of(ours(kSecondMoment, 1)), fixture_.read_floats("second_moment.small"), 1e-5,
               1e-12);
  for (const std::size_t i : {0u, 1u}) {
    const auto* data = weights_.view(static_cast<std::int64_t>(i)).as<float>();
    const std::vector<float> want = fixture_.read_floats("weight." + specs_[i].name);
    const std::vector<float> got(data, data + size(i));
    // A neighbouring code changes later updates by a few percent of the learning rate.
    std::int64_t differ = 0;
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t e = 0; e < got.size(); ++e) {
      ASSERT_NEAR(got[e], want[e], 1e-2);
      differ += std::fabs(got[e] - want[e]) > 1e-6 ? 1 : 0;
    }
    EXPECT_LE(differ, std::ssize(got) / 500);
  }
}

// Slices of whole blocks: smaller than a coded parameter, larger than several, and the default.
constexpr std::int64_t kSliceSizes[] = {1024, 3072, std::int64_t{4} << 20, 0};

TEST(OtherOptimizers, TheSameBitsEverywhere) {
  const TempDirectory disk;
  const auto device = make_cpu_device();
  const ModelConfig config = optimizer_model();
  for (const OptimizerConfig& options : other_optimizers())
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      Trained resident(*device, config, dtype, {}, options);
      EXPECT_EQ(resident.optimizer->has_masters(), options.masters && dtype != DType::kF32);
      const std::string start = resident.bytes();
      resident.update(1, 4);
      EXPECT_NE(resident.bytes(), start);
      for (const std::int64_t slice : kSliceSizes)
        for (const StateOptions& place : {on_host(slice), on_disk(disk.path(), slice),
                                          split(disk.path(), slice, config, dtype, options)}) {
          Trained moved(*device, config, dtype, place, options);
          EXPECT_EQ(moved.bytes(), start);
          moved.update(1, 2);
          (void)moved.bytes();
          moved.update(3, 2);
          EXPECT_TRUE(moved.bytes() == resident.bytes())
              << name_of(options) << ", " << name_of(dtype) << ", slices of " << slice << ", "
              << place.host_bytes << " bytes of host";
        }
    }
}

TEST(OtherOptimizers, TakeWhatTheySay) {
  const TempDirectory disk;
  const auto device = make_cpu_device();
  const ModelConfig config = optimizer_model();
  for (const OptimizerConfig& options : other_optimizers())
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      ParameterSet weights(*device, config, dtype, "weights");
      std::vector<StateOptions> places = {StateOptions{}};
      for (const std::int64_t slice : kSliceSizes) {
        places.push_back(on_host(slice));
        places.push_back(on_disk(disk.path(), slice));
        places.push_back(split(disk.path(), slice, config, dtype, options));
      }
      for (const StateOptions& place : places) {
        const StateBytes needed = Optimizer::bytes_needed(weights.specs(), options, place);
        const std::int64_t before = device->allocated_bytes();
        Optimizer optimizer(weights, options, place);
        EXPECT_EQ(device->allocated_bytes() - before,
                  needed.device + needed.host + size_of(DType::kF64));
        EXPECT_EQ(optimizer.state().bytes().device, needed.device);
        EXPECT_EQ(optimizer.state().bytes().host, needed.host);
        EXPECT_EQ(optimizer.state().bytes().disk, needed.disk);
      }
    }
}

// 2 bytes and 1/32 per parameter, 4 more with masters.
TEST(OtherOptimizers, AreSmall) {
  const std::vector<ParameterSpec> specs = {
      {.name = "large", .shape = {1 << 20}, .dtype = DType::kBF16},
      {.name = "norm", .shape = {64}, .dtype = DType::kBF16}};
  OptimizerConfig options;
  options.state = "8bit";
  const std::int64_t moments = (2 << 20) + 2 * 4 * (1 << 12) + 2 * 256;
  EXPECT_EQ(Optimizer::bytes_needed(specs, options, {}).device, moments + (4 << 20) + 256);
  options.masters = false;
  EXPECT_EQ(Optimizer::bytes_needed(specs, options, {}).device, moments);
  options.state = "fp32";
  EXPECT_EQ(Optimizer::bytes_needed(specs, options, {}).device, (8 << 20) + 2 * 256);
}

// Saved after three updates in one place, loaded in another, and two updates more.
TEST(OtherOptimizers, CheckpointsFitEveryPlace) {
  const auto device = make_cpu_device();
  const ModelConfig config = find_preset("tiny-qwen2");
  const TempDirectory disk;
  constexpr DType kType = DType::kBF16;
  for (const OptimizerConfig& options : other_optimizers()) {
    const StateOptions places[] = {{},
                                   on_host(1024),
                                   on_disk(disk.path(), 3072),
                                   split(disk.path(), 4096, config, kType, options)};
    Trained straight(*device, config, kType, {}, options);
    straight.update(1, 5);
    std::string first_file;
    for (const StateOptions& from : places) {
      const TempDirectory directory;
      Trained saving(*device, config, kType, from, options);
      saving.update(1, 3);
      TrainState state;
      state.step = 3;
      state.config = OrderedJson::object();
      const std::filesystem::path saved =
          save_checkpoint(directory.path(),
                          {state, config, tensors_in_place(saving.weights, *saving.optimizer), {}});
      const std::string file = read_text(saved / "state/optimizer.safetensors");
      if (first_file.empty()) first_file = file;
      EXPECT_TRUE(file == first_file);
      for (const StateOptions& to : places) {
        Trained resumed(*device, config, kType, to, options);
        ModelDirectory::open(saved).load(resumed.weights);
        load_optimizer(saved, resumed.weights, *resumed.optimizer);
        EXPECT_TRUE(resumed.bytes() == saving.bytes());
        resumed.update(4, 2);
        EXPECT_TRUE(resumed.bytes() == straight.bytes()) << name_of(options);
      }
      // The state of another kind of optimizer is not mistaken for this one's.
      OptimizerConfig other;
      other.masters = options.masters;
      other.state = options.state == "8bit" ? "fp32" : "8bit";
      Trained wrong(*device, config, kType, {}, other);
      EXPECT_THROW(load_optimizer(saved, wrong.weights, *wrong.optimizer), Error);
    }
  }
}

// Another seed rounds differently; the difference between two seeds is at most a few steps.
TEST(OtherOptimizers, TheSeedDecidesTheRounding) {
  const auto device = make_cpu_device();
  const ModelConfig config = optimizer_model();
  OptimizerConfig options;
  options.masters = false;
  Trained a(*device, config, DType::kBF16, {}, options),
      b(*device, config, DType::kBF16, {}, options);
  b.optimizer = std::make_unique<Optimizer>(b.weights, options, StateOptions{}, 18);
  a.update(1, 1);
  b.update(1, 1);
  std::int64_t differ = 0, all = 0;
  for (std::int64_t i = 0; i < a.weights.size(); ++i)
    for (std::int64_t e = 0; e < a.weights.view(i).elements(); ++e) {
      const float x = to_float(a.weights.view(i).as<bf16>()[e]),
                  y = to_float(b.weights.view(i).as<bf16>()[e]);
      differ += x == y ? 0 : 1;
      all += 1;
      ASSERT_LE(std::fabs(x - y), 0x1p-7 * std::max(std::fabs(x), std::fabs(y)));
    }
  EXPECT_GT(differ, all / 10);
  EXPECT_LT(differ, all);
}

}  // namespace
}  // namespace longstride
