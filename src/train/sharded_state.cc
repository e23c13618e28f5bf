#include "train/sharded_state.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace longstride {
namespace {

constexpr std::int64_t kMessageBytes = std::int64_t{16} << 20;

}  // namespace

ShardedState::ShardedState(const ParameterSet& weights, Optimizer& optimizer, comm::Link& link)
    : weights_(weights),
      optimizer_(optimizer),
      link_(link),
      tensors_(state_tensors(weights.specs(), optimizer.state().columns())) {
  for (const std::vector<ParameterPiece>& pieces : cut_shards(weights.specs(), link.size())) {
    std::vector<std::int64_t>& has = elements_.emplace_back(weights.specs().size());
    for (const ParameterPiece& piece : pieces)
      has[static_cast<std::size_t>(piece.parameter)] += piece.elements;
  }
}

TensorsToWrite ShardedState::tensors() {
  TensorsToWrite all;
  for (const StateTensor& tensor : tensors_) all.tensors.push_back(tensor.tensor);
  all.read = [this](std::int64_t tensor, const ByteSink& sink) { read(tensor, sink); };
  return all;
}

std::vector<ShardedState::Part> ShardedState::parts_of(std::int64_t tensor) const {
  const StateTensor& of = tensors_[static_cast<std::size_t>(tensor)];
  const StateColumn& column = optimizer_.state().columns()[static_cast<std::size_t>(of.column)];
  std::vector<Part> parts;
  for (std::size_t rank = 0; rank < elements_.size(); ++rank)
    if (const std::int64_t has = elements_[rank][static_cast<std::size_t>(of.parameter)]; has > 0)
      parts.push_back({static_cast<int>(rank), column.bytes(has)});
  return parts;
}

ShardedState::Indices ShardedState::in_order(Indices file) const {
  std::ranges::stable_sort(file, std::greater(), [&](std::int64_t tensor) {
    return size_of(tensors_[static_cast<std::size_t>(tensor)].tensor.dtype);
  });
  return file;
}

bool ShardedState::writes(const Indices& file) const {
  return parts_of(file.front()).front().rank == link_.rank();
}

WrittenFile ShardedState::write(const Indices& file,
                                const std::function<WrittenFile()>& write_file) {
  coming_.clear();
  for (const std::int64_t tensor : in_order(file))
    for (const Part& part : parts_of(tensor))
      if (part.rank != link_.rank())
        for (std::int64_t at = 0; at < part.bytes; at += kMessageBytes)
          coming_.push_back({part.rank, std::min(kMessageBytes, part.bytes - at)});
  std::ranges::reverse(coming_);
  try {
    WrittenFile written = write_file();
    LS_CHECK(coming_.empty(), "{} messages of a file were not read", coming_.size());
    return written;
  } catch (const Error&) {
    const auto drop = [](std::span<const std::byte>) {};
    while (!coming_.empty()) receive(coming_.back(), drop);
    throw;
  }
}

void ShardedState::read(std::int64_t tensor, const ByteSink& sink) {
  const StateTensor& of = tensors_[static_cast<std::size_t>(tensor)];
  for (const Part& part : parts_of(tensor)) {
    if (part.rank == link_.rank()) {
      optimizer_.state().read(of.column, of.parameter, sink);
      continue;
    }
    for (std::int64_t at = 0; at < part.bytes; at += kMessageBytes) receive(coming_.back(), sink);
  }
}

void ShardedState::receive(const Part& part, const ByteSink& sink) {
  const auto [rank, bytes] = part;
  buffer_.resize(static_cast<std::size_t>(bytes));
  link_.wait(link_.start_receive(rank, buffer_, comm::Traffic::kControl));
  coming_.pop_back();
  sink(buffer_);
}

void ShardedState::send(const Indices& file) {
  const int writer = parts_of(file.front()).front().rank;
  for (const std::int64_t tensor : in_order(file))
    for (const Part& part : parts_of(tensor))
      if (part.rank == link_.rank()) send_part(tensors_[static_cast<std::size_t>(tensor)], writer);
}

void ShardedState::send_part(const StateTensor& tensor, int to) {
  buffer_.clear();
  const auto leave = [&] {
    link_.wait(link_.start_send(to, buffer_, comm::Traffic::kControl));
    buffer_.clear();
  };
  optimizer_.state().read(tensor.column, tensor.parameter, [&](std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const std::size_t room = static_cast<std::size_t>(kMessageBytes) - buffer_.size(),
                        taken = std::min(room, bytes.size());
      buffer_.insert(buffer_.end(), bytes.begin(),
                     bytes.begin() + static_cast<std::ptrdiff_t>(taken));
      bytes = bytes.subspan(taken);
      if (std::ssize(buffer_) == kMessageBytes) leave();
    }
  });
  if (!buffer_.empty()) leave();
}

}  // namespace longstride
