#include "train/save_snapshot.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"

namespace longstride {
namespace {

// Host memory that is touched for the first time by what is copied into it.
class CopyMemory {
 public:
  explicit CopyMemory(std::int64_t bytes) : bytes_(static_cast<std::size_t>(bytes)) {
    void* map = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) return;
    data_ = static_cast<std::byte*>(map);
    ::madvise(data_, bytes_, MADV_HUGEPAGE);  // advice: small pages serve as well
  }
  CopyMemory(const CopyMemory&) = delete;
  CopyMemory& operator=(const CopyMemory&) = delete;
  ~CopyMemory() {
    if (data_ != nullptr) ::munmap(data_, bytes_);
  }
  std::byte* data() const { return data_; }

 private:
  std::size_t bytes_;
  std::byte* data_ = nullptr;
};

// All tensors of one kind, one after the other.
class Copies {
 public:
  // `read(i, sink)` gives the bytes of tensor i.
  template <class Read>
  bool take(std::span<const std::int64_t> sizes, const Read& read) {
    std::int64_t total = 0;
    for (const std::int64_t size : sizes) {
      starts_.push_back(total);
      total += size;
    }
    starts_.push_back(total);
    memory_ = std::make_unique<CopyMemory>(std::max<std::int64_t>(total, 1));
    if (memory_->data() == nullptr) return false;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      std::byte* to = memory_->data() + starts_[i];
      read(static_cast<std::int64_t>(i), [&](std::span<const std::byte> bytes) {
        LS_CHECK(to + bytes.size() <= memory_->data() + starts_[i + 1], "tensor {}", i);
        std::memcpy(to, bytes.data(), bytes.size());
        to += bytes.size();
      });
    }
    return true;
  }
  void read(std::int64_t i, const ByteSink& sink) const {
    // Pieces, so that what checks them holds little at a time.
    constexpr std::int64_t kPiece = std::int64_t{16} << 20;
    const auto index = static_cast<std::size_t>(i);
    for (std::int64_t at = starts_[index]; at < starts_[index + 1]; at += kPiece)
      sink({memory_->data() + at,
            static_cast<std::size_t>(std::min(kPiece, starts_[index + 1] - at))});
  }

 private:
  std::vector<std::int64_t> starts_;
  std::unique_ptr<CopyMemory> memory_;
};

std::vector<std::int64_t> weight_sizes(const ParameterSet& weights) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t i = 0; i < weights.size(); ++i) sizes.push_back(weights.view(i).bytes());
  return sizes;
}

std::vector<std::int64_t> state_sizes(const ParameterSet& weights, bool has_masters) {
  std::vector<std::int64_t> sizes;
  for (int part = 0; part < (has_masters ? 3 : 2); ++part)
    for (std::int64_t i = 0; i < weights.size(); ++i)
      sizes.push_back(weights.view(i).elements() * size_of(DType::kF32));
  return sizes;
}

std::int64_t sum_of(const std::vector<std::int64_t>& sizes) {
  std::int64_t sum = 0;
  for (const std::int64_t size : sizes) sum += size;
  return sum;
}

class Snapshot final : public SaveSnapshot {
 public:
  explicit Snapshot(CheckpointTensors in_place) : tensors_(std::move(in_place)) {}
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  bool copy_weights(const ParameterSet& weights) {
    if (!weights_.take(weight_sizes(weights), tensors_.weights.read)) return false;
    tensors_.weights.read = [this](std::int64_t i, const ByteSink& sink) {
      weights_.read(i, sink);
    };
    ++copied_;
    return true;
  }
  bool copy_state(const ParameterSet& weights) {
    const std::int64_t n = weights.size();
    const auto read = [&](std::int64_t i, const ByteSink& sink) {
      tensors_.read_state(static_cast<StatePart>(i / n), i % n, sink);
    };
    if (!state_.take(state_sizes(weights, tensors_.has_masters), read)) return false;
    tensors_.read_state = [this, n](StatePart part, std::int64_t i, const ByteSink& sink) {
      state_.read(static_cast<std::int64_t>(part) * n + i, sink);
    };
    ++copied_;
    return true;
  }

  const CheckpointTensors& tensors() const override { return tensors_; }
  bool detached() const override { return copied_ == 2; }

 private:
  CheckpointTensors tensors_;
  Copies weights_, state_;
  int copied_ = 0;
};

}  // namespace

CheckpointTensors tensors_in_place(const ParameterSet& weights, Optimizer& optimizer) {
  return {weights_to_write(weights), optimizer.has_masters(),
          [&optimizer](StatePart part, std::int64_t i, const ByteSink& sink) {
            optimizer.state().read(part, i, sink);
          }};
}

std::int64_t snapshot_bytes(const ParameterSet& weights, const Optimizer& optimizer) {
  return sum_of(weight_sizes(weights)) + sum_of(state_sizes(weights, optimizer.has_masters()));
}

std::unique_ptr<SaveSnapshot> SaveSnapshot::take(const ParameterSet& weights, Optimizer& optimizer,
                                                 std::int64_t budget) {
  const bool weights_readable = weights.device().shares_host_memory(),
             state_readable = weights_readable || !optimizer.state().on_device();
  const std::int64_t weight_bytes = sum_of(weight_sizes(weights)),
                     state_bytes = sum_of(state_sizes(weights, optimizer.has_masters()));
  std::int64_t left =
      budget - (weights_readable ? 0 : weight_bytes) - (state_readable ? 0 : state_bytes);
  if (left < 0) return nullptr;
  auto snapshot = std::make_unique<Snapshot>(tensors_in_place(weights, optimizer));
  if (!weights_readable && !snapshot->copy_weights(weights)) return nullptr;
  if (!state_readable && !snapshot->copy_state(weights)) return nullptr;
  // What lives in host memory is copied if that spares the next update a wait; in part it does not.
  const std::int64_t rest =
      (weights_readable ? weight_bytes : 0) + (state_readable ? state_bytes : 0);
  if (rest <= left) {
    if (weights_readable && !snapshot->copy_weights(weights)) return snapshot;
    if (state_readable) snapshot->copy_state(weights);
  }
  return snapshot;
}

}  // namespace longstride
