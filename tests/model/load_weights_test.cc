// Loads weights onto a device with its own memory, through reused staging buffers: every byte
// arrives, and nothing is overwritten before it is copied.
#include "model/load_weights.h"

#include <gtest/gtest.h>

#include <cstring>

#include "model/model_directory.h"
#include "model/presets.h"
#include "tests/data/temp_directory.h"
#include "tests/offload/wait_sites.h"
#include "tests/pages/watched_mover.h"

namespace longstride {
namespace {

// The CPU as a device with separate memory and delayed copies.
class SeparateDevice final : public Device {
 public:
  SeparateDevice() { watch.granule = 1 << 16; }
  DeviceKind kind() const override { return cpu_->kind(); }
  std::string name() const override { return cpu_->name(); }
  Stream& stream() override { return cpu_->stream(); }
  std::unique_ptr<Memory> allocate(std::int64_t bytes, const std::string& what) override {
    return cpu_->allocate(bytes, what);
  }
  std::unique_ptr<Mover> make_mover() override { return std::make_unique<WatchedMover>(watch); }
  void copy_to_host(void* host, const void* device, std::int64_t bytes) override {
    cpu_->copy_to_host(host, device, bytes);
  }
  void copy_to_host_later(void* host, const void* device, std::int64_t bytes) override {
    cpu_->copy_to_host_later(host, device, bytes);
  }
  void copy_from_host(void* device, const void* host, std::int64_t bytes) override {
    cpu_->copy_from_host(device, host, bytes);
  }
  void zero(void* device, std::int64_t bytes) override { cpu_->zero(device, bytes); }
  std::int64_t allocated_bytes() const override { return cpu_->allocated_bytes(); }
  std::int64_t available_bytes() const override { return cpu_->available_bytes(); }

  MoverWatch watch;

 private:
  std::unique_ptr<Device> cpu_ = make_cpu_device();
};

class LoadWeights : public testing::Test {
 protected:
  // Several buffers of bytes, in tensors that begin and end within them.
  LoadWeights() {
    Json json = find_preset("tiny-llama").raw;
    json["vocab_size"] = 50'001;
    json["hidden_size"] = 256;
    config_ = parse_config(json, "test");
    ParameterSet written(*cpu_, config_, DType::kBF16, "weights");
    auto* const at = reinterpret_cast<std::uint16_t*>(written.data());
    // Numbers between 1 and 2 that differ from their neighbours; faster than random ones.
    for (std::int64_t i = 0; i < written.bytes() / 2; ++i)
      at[i] = static_cast<std::uint16_t>(0x3f80 | ((i * 37 + i / 1000) & 0x7f));
    write_model_directory(directory_.path(), config_, written);
  }
  bool arrives(Device& device, DType dtype) const {
    const ModelDirectory model = ModelDirectory::open(directory_.path());
    ParameterSet expected(*cpu_, config_, dtype, "weights"),
        loaded(device, config_, dtype, "weights");
    model.load(expected);
    model.load(loaded);
    return std::memcmp(expected.data(), loaded.data(),
                       static_cast<std::size_t>(expected.bytes())) == 0;
  }

  std::unique_ptr<Device> cpu_ = make_cpu_device();
  TempDirectory directory_;
  ModelConfig config_;
};

TEST_F(LoadWeights, EveryByteArrivesThroughBuffersThatAreUsedAgain) {
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    SeparateDevice device;
    EXPECT_TRUE(arrives(device, dtype)) << name_of(dtype);
    EXPECT_GT(device.watch.copies, 2) << name_of(dtype);  // more than there are buffers
    EXPECT_EQ(device.watch.races, 0) << name_of(dtype);
  }
}

TEST_F(LoadWeights, WaitForABufferToBeEmpty) {
  for (const WaitSite* site : wait_sites_of("weights")) {
    SeparateDevice device;
    device.watch.left_out = site;
    EXPECT_FALSE(arrives(device, DType::kF32)) << site->name();
  }
}

}  // namespace
}  // namespace longstride
