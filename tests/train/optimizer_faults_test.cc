// A disk that fails under the optimizer's state causes an Error that says so, never wrong values,
// and leaves earlier checkpoints unchanged.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>

#include "base/files.h"
#include "model/presets.h"
#include "tests/offload/disk_queue_fixture.h"
#include "tests/train/optimizer_fixture.h"
#include "train/checkpoint.h"

namespace longstride {
namespace {

enum class Fault : std::uint8_t { kNone, kWrite, kFull, kRead, kChanged };

class OptimizerFaults : public ::testing::Test {
 protected:
  using Request = BlockIo::Request;
  using Result = BlockIo::Result;

  // State on a disk that fails, once `fault_` is set, at about the middle of the file.
  StateOptions state() {
    StateOptions options = on_disk(disk_.path(), 1088);
    options.make_disk = [this](const std::filesystem::path& directory, std::int64_t blocks,
                               std::int64_t block_bytes, const std::string& what) {
      auto file =
          std::make_shared<OffloadFile>(directory, blocks * block_bytes, "the test's blocks");
      OpenedIo opened = open_block_io(file, block_bytes);
      const std::int64_t middle = blocks / 2 * block_bytes;
      opened.io = std::make_unique<FaultyIo>(
          std::move(opened.io),
          FaultyIo::Faults{.after = [this, middle](const Request& request, Result& result) {
            if (request.offset != middle) return;
            const Fault fault = fault_;
            if (request.from != nullptr && fault == Fault::kWrite) result.moved = -EIO;
            if (request.from != nullptr && fault == Fault::kFull) result.moved = -ENOSPC;
            if (request.to != nullptr && fault == Fault::kRead) result.moved = -EIO;
            if (request.to != nullptr && fault == Fault::kChanged) request.to[5] ^= std::byte{1};
          }});
      return std::make_unique<DiskQueue>(std::move(opened), directory, blocks, block_bytes, what);
    };
    return options;
  }
  std::filesystem::path save(Trained& trained, std::int64_t step) {
    TrainState state;
    state.step = step;
    state.config = OrderedJson::object();
    return save_checkpoint(
        out_.path(), {state, config_, tensors_in_place(trained.weights, *trained.optimizer), {}});
  }

  TempDirectory disk_, out_;
  std::atomic<Fault> fault_ = Fault::kNone;
  std::unique_ptr<Device> device_ = make_cpu_device();
  ModelConfig config_ = find_preset("tiny-qwen2");
};

struct Case {
  Fault fault;
  std::vector<std::string> says;
};
const std::vector<Case> kCases = {
    {Fault::kWrite,
     {"slices of the optimizer's state could not be written", "Input/output error",
      "last checkpoint"}},
    {Fault::kFull, {"could not be written", "No space left", "memory.disk_path"}},
    {Fault::kRead, {"slices of the optimizer's state could not be read back", "last checkpoint"}},
    {Fault::kChanged, {"read back", "differs from what was written", "last checkpoint"}}};

TEST_F(OptimizerFaults, AnUpdateOrTheNextUseSaysSo) {
  for (const Case& c : kCases) {
    fault_ = Fault::kNone;
    Trained trained(*device_, config_, DType::kBF16, state());
    trained.update(1, 1);
    fault_ = c.fault;
    const std::string error = error_of([&] {
      trained.update(2, 1);
      trained.update(3, 1);
    });
    EXPECT_TRUE(says(error, c.says));
    EXPECT_TRUE(says(error, {disk_.path().string()}));
  }
}

TEST_F(OptimizerFaults, ASaveThatFailsLeavesTheOnesBefore) {
  for (const Case& c : kCases) {
    fault_ = Fault::kNone;
    Trained trained(*device_, config_, DType::kBF16, state());
    trained.update(1, 1);
    const std::filesystem::path first = save(trained, 1);
    const std::string before = read_text(first / "state/optimizer.safetensors");
    fault_ = c.fault;
    const std::string error = error_of([&] {
      trained.update(2, 1);
      save(trained, 2);
    });
    EXPECT_TRUE(says(error, c.says));
    EXPECT_EQ(newest_checkpoint(out_.path()), first);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(out_.path()), {}), 1);
    EXPECT_TRUE(read_text(first / "state/optimizer.safetensors") == before);

    // From there the run resumes as if nothing had happened.
    fault_ = Fault::kNone;
    Trained resumed(*device_, config_, DType::kBF16, state()),
        straight(*device_, config_, DType::kBF16, {});
    ModelDirectory::open(first).load(resumed.weights);
    load_optimizer(first, resumed.weights, *resumed.optimizer);
    resumed.update(2, 1);
    straight.update(1, 2);
    EXPECT_TRUE(resumed.bytes() == straight.bytes());
    std::filesystem::remove_all(first);
  }
}

TEST_F(OptimizerFaults, ALoadThatFailsSaysSo) {
  Trained saving(*device_, config_, DType::kBF16, {});
  const std::filesystem::path saved = save(saving, 1);
  Trained trained(*device_, config_, DType::kBF16, state());
  fault_ = Fault::kWrite;
  const std::string error = error_of([&] {
    load_optimizer(saved, trained.weights, *trained.optimizer);
    (void)trained.bytes();
  });
  EXPECT_TRUE(says(error, kCases[0].says));
}

TEST_F(OptimizerFaults, DirectoriesThatCannotBeUsed) {
  ParameterSet weights(*device_, config_, DType::kF32, "weights");
  const std::string error = error_of(
      [&] { const Optimizer optimizer(weights, {}, on_disk(disk_.path() / "missing", 1088)); });
  EXPECT_TRUE(says(error, {"memory.disk_path", "missing", "cannot be written"}));
}

}  // namespace
}  // namespace longstride
