#include "train/group_sums.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "ops/elementwise.h"

namespace longstride {
namespace {

constexpr std::int64_t kAlignment = 256;

std::int64_t largest_piece(const std::vector<std::vector<ParameterPiece>>& shards) {
  std::int64_t most = 0;
  for (const std::vector<ParameterPiece>& shard : shards)
    for (const ParameterPiece& piece : shard) most = std::max(most, piece.elements);
  return most;
}

std::int64_t most_pieces(const std::vector<std::vector<ParameterPiece>>& shards) {
  std::size_t most = 0;
  for (const std::vector<ParameterPiece>& shard : shards) most = std::max(most, shard.size());
  return static_cast<std::int64_t>(most);
}

std::int64_t piece_bytes(const std::vector<std::vector<ParameterPiece>>& shards) {
  const std::int64_t bytes = largest_piece(shards) * size_of(DType::kF32);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// The sums have their type.
std::vector<ParameterSpec> as_f32(std::vector<ParameterSpec> specs) {
  for (ParameterSpec& spec : specs) spec.dtype = DType::kF32;
  return specs;
}

}  // namespace

GroupSumsBytes GroupSums::bytes_needed(const std::vector<ParameterSpec>& parameters,
                                       std::int64_t groups, std::int64_t processes,
                                       std::int64_t shard, const Options& options) {
  if (groups == 1) return {};
  const auto shards = cut_shards(parameters, processes, options.piece_elements);
  GroupSumsBytes bytes;
  if (adds_apart(groups, processes))
    bytes.device += ParameterSet::bytes_needed(
        as_f32(make_shard(parameters, shards[static_cast<std::size_t>(shard)]).specs),
        Holds::kTrainable);
  if (processes == 1) return bytes;
  const std::int64_t piece = piece_bytes(shards), others = 2 * (processes - 1);
  bytes.device += (1 + (options.direct ? others : 1)) * piece;
  if (!options.direct) bytes.host = 2 * others * piece;
  return bytes;
}

GroupSums::GroupSums(Device& device, const std::vector<ParameterSpec>& parameters,
                     std::int64_t groups, comm::Link* link, const Options& options)
    : device_(device), link_(link), direct_(options.direct) {
  const std::int64_t processes = link == nullptr ? 1 : link->size();
  LS_CHECK(groups > 1 && groups % processes == 0, "{} groups for {} processes", groups, processes);
  shards_ = cut_shards(parameters, processes, options.piece_elements);
  if (link != nullptr) rank_ = static_cast<std::size_t>(link->rank());
  shard_ = make_shard(parameters, shards_[rank_]);
  if (adds_apart(groups, processes))
    sums_ = std::make_unique<ParameterSet>(device, as_f32(shard_.specs), "sums of gradients",
                                           Holds::kTrainable);
  if (link == nullptr) return;
  scratch_bytes_ = piece_bytes(shards_);
  scratch_ = device.allocate((1 + (direct_ ? 2 * (processes - 1) : 1)) * scratch_bytes_,
                             "gradients of other groups");
  std::byte* next = scratch_->data() + scratch_bytes_;
  std::byte* next_on_host = nullptr;
  if (!direct_ && scratch_bytes_ > 0) {
    by_host_ = device.allocate_host(4 * (processes - 1) * scratch_bytes_, scratch_bytes_,
                                    "messages of groups");
    by_host_->prepare(0, by_host_->bytes());
    next_on_host = by_host_->data();
  }
  for (Slot& slot : slots_) {
    slot.leaving.resize(static_cast<std::size_t>(processes));
    slot.coming.resize(static_cast<std::size_t>(processes));
    slot.arrived.resize(static_cast<std::size_t>(processes), next);
    for (std::size_t r = 0; r < slot.coming.size(); ++r) {
      if (r == rank_) continue;
      if (direct_) {
        slot.arrived[r] = std::exchange(next, next + scratch_bytes_);
        continue;
      }
      slot.leaving[r] = std::exchange(next_on_host, next_on_host + scratch_bytes_);
      slot.coming[r] = std::exchange(next_on_host, next_on_host + scratch_bytes_);
    }
  }
}

GroupSums::~GroupSums() {
  // An exception has ended the step: nothing may be written to the buffers any more.
  if (std::ranges::any_of(slots_, [](const Slot& slot) { return !slot.tickets.empty(); }))
    link_->abandon();
}

View GroupSums::piece_of(const ParameterSet& set, const ParameterPiece& piece) const {
  const View view = set.view(piece.parameter);
  return {static_cast<std::byte*>(view.data()) + piece.first * size_of(view.dtype()),
          view.dtype(),
          {piece.elements}};
}

View GroupSums::sum_piece(const ParameterPiece& piece) {
  if (!sums_) return {scratch_->data(), DType::kF32, {piece.elements}};
  ParameterPiece in_shard = piece;
  in_shard.first -= shard_.first[static_cast<std::size_t>(piece.parameter)];
  return piece_of(*sums_, in_shard);
}

View GroupSums::sum_of(const ParameterSet& gradients, std::int64_t parameter) const {
  const std::int64_t first = shard_.first[static_cast<std::size_t>(parameter)];
  return sums_ ? piece_of(*sums_, {parameter, 0, shard_.elements(parameter)})
               : piece_of(gradients, {parameter, first, shard_.elements(parameter)});
}

void GroupSums::settle(Slot& slot) {
  for (const comm::Ticket ticket : slot.tickets)
    if (direct_)
      link_->wait_on_stream(ticket);
    else
      link_->wait(ticket);
  slot.tickets.clear();
}

comm::Ticket GroupSums::send(int to, const View& part, std::byte* by) {
  if (direct_) return link_->send(to, {part.data(), part.bytes(), comm::MemoryKind::kDevice});
  device_.copy_to_host(by, part.data(), part.bytes());
  return link_->send(to, {by, part.bytes()});
}

comm::Ticket GroupSums::receive(int from, std::int64_t bytes, std::byte* direct, std::byte* by) {
  if (direct_) return link_->receive(from, {direct, bytes, comm::MemoryKind::kDevice});
  return link_->receive(from, {by, bytes});
}

template <class Post, class Use>
void GroupSums::for_places(const Post& post, const Use& use) {
  const std::int64_t places = most_pieces(shards_);
  const auto slot = [&](std::int64_t at) -> Slot& {
    return slots_[static_cast<std::size_t>(at) % slots_.size()];
  };
  for (std::int64_t at = 0; at <= places; ++at) {
    if (at < places) post(at, slot(at));
    if (at == 0) continue;
    settle(slot(at - 1));
    use(at - 1, slot(at - 1));
  }
}

void GroupSums::add_round(ParameterSet& gradients, std::int64_t round) {
  if (link_ == nullptr) {
    for (const ParameterPiece& piece : pieces()) {
      const View sum = sum_piece(piece), one = piece_of(gradients, piece);
      if (round == 0)
        ops::convert(device_.stream(), {one, sum});
      else
        ops::add(device_.stream(), {sum, one, sum});
    }
    return;
  }
  for_places([&](std::int64_t at, Slot& slot) { post_gradients(gradients, at, slot); },
             [&](std::int64_t at, Slot& slot) { add_gradients(gradients, at, round == 0, slot); });
}

void GroupSums::post_gradients(const ParameterSet& gradients, std::int64_t at, Slot& slot) {
  for (std::size_t r = 0; r < shards_.size(); ++r) {
    if (r == rank_) continue;
    const int other = static_cast<int>(r);
    if (at < std::ssize(pieces()))
      slot.tickets.push_back(
          receive(other, piece_of(gradients, pieces()[static_cast<std::size_t>(at)]).bytes(),
                  slot.arrived[r], slot.coming[r]));
    if (at < std::ssize(shards_[r]))
      slot.tickets.push_back(send(
          other, piece_of(gradients, shards_[r][static_cast<std::size_t>(at)]), slot.leaving[r]));
  }
}

void GroupSums::add_gradients(ParameterSet& gradients, std::int64_t at, bool begins, Slot& slot) {
  if (at >= std::ssize(pieces())) return;
  const ParameterPiece& piece = pieces()[static_cast<std::size_t>(at)];
  const View mine = piece_of(gradients, piece), sum = sum_piece(piece);
  for (std::size_t r = 0; r < shards_.size(); ++r) {
    const View one = r == rank_ ? mine : View(slot.arrived[r], DType::kF32, {piece.elements});
    if (r != rank_ && !direct_) device_.copy_from_host(one.data(), slot.coming[r], one.bytes());
    if (begins && r == 0)
      ops::convert(device_.stream(), {one, sum});
    else
      ops::add(device_.stream(), {sum, one, sum});
  }
  if (!sums_) ops::convert(device_.stream(), {sum, mine});
}

void GroupSums::share_weights(ParameterSet& weights) {
  if (link_ == nullptr) return;
  for_places([&](std::int64_t at, Slot& slot) { post_weights(weights, at, slot); },
             [&](std::int64_t at, Slot& slot) { take_weights(weights, at, slot); });
}

void GroupSums::post_weights(const ParameterSet& weights, std::int64_t at, Slot& slot) {
  for (std::size_t r = 0; r < shards_.size(); ++r) {
    if (r == rank_) continue;
    const int other = static_cast<int>(r);
    if (at < std::ssize(shards_[r])) {
      const View theirs = piece_of(weights, shards_[r][static_cast<std::size_t>(at)]);
      slot.tickets.push_back(
          receive(other, theirs.bytes(), static_cast<std::byte*>(theirs.data()), slot.coming[r]));
    }
    if (at < std::ssize(pieces()))
      slot.tickets.push_back(
          send(other, piece_of(weights, pieces()[static_cast<std::size_t>(at)]), slot.leaving[r]));
  }
}

void GroupSums::take_weights(ParameterSet& weights, std::int64_t at, Slot& slot) {
  if (direct_) return;  // they are in place
  for (std::size_t r = 0; r < shards_.size(); ++r) {
    if (r == rank_ || at >= std::ssize(shards_[r])) continue;
    const View theirs = piece_of(weights, shards_[r][static_cast<std::size_t>(at)]);
    device_.copy_from_host(theirs.data(), slot.coming[r], theirs.bytes());
  }
}

}  // namespace longstride
