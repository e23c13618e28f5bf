#include "train/tied_stages.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "model/tied_head.h"
#include "ops/elementwise.h"

namespace longstride {
namespace {

// The parameter of a stage that another has too, or the end.
auto find_tied(const std::vector<ParameterSpec>& parameters) {
  return std::ranges::find_if(
      parameters, [](const ParameterSpec& spec) { return spec.tied_part != TiedPart::kWhole; });
}

// Of rows that travel at once, as gradients or as weights.
std::int64_t piece_bytes(const ParameterSpec& tied) {
  return ParameterSet::arriving_rows(tied.shape) * tied.shape[1] *
         std::max(size_of(DType::kF32), size_of(tied.dtype));
}

}  // namespace

std::int64_t TiedStages::host_bytes(const std::vector<ParameterSpec>& parameters) {
  const auto found = find_tied(parameters);
  return found == parameters.end() ? 0 : 2 * piece_bytes(*found);
}

TiedStages::TiedStages(Device& device, comm::Link& link,
                       const std::vector<ParameterSpec>& parameters)
    : device_(device), link_(link) {
  const auto found = find_tied(parameters);
  if (found == parameters.end()) return;
  part_ = found->tied_part;
  trained_ = found->head_apart;
  parameter_ = found - parameters.begin();
  rows_ = ParameterSet::arriving_rows(found->shape);
  LS_CHECK(link.size() > 1 && link.rank() == (is_first() ? 0 : link.size() - 1),
           "{} in rank {} of {}", found->name, link.rank(), link.size());
  fold_bytes_ = bytes_of(DType::kF32, found->shape);
  share_bytes_ = bytes_of(found->dtype, found->shape);
  const std::int64_t bytes = piece_bytes(*found);
  memory_ = device.allocate_host(2 * bytes, bytes, "pieces of a tied embedding");
  memory_->prepare(0, memory_->bytes());
  pieces_[0].data = memory_->data();
  pieces_[1].data = memory_->data() + bytes;
}

TiedStages::~TiedStages() {
  // A step that ended by an exception leaves messages behind.
  const auto on_its_way = [](const Piece& piece) { return piece.ticket.number != 0; };
  if (std::ranges::any_of(pieces_, on_its_way)) link_.abandon();
}

std::int64_t TiedStages::fold_bytes() const { return is_last() && trained_ ? fold_bytes_ : 0; }

std::int64_t TiedStages::share_bytes() const { return is_first() && trained_ ? share_bytes_ : 0; }

void TiedStages::fold(ParameterSet& gradients) {
  if (part_ == TiedPart::kWhole) return add_head_gradient(gradients);
  if (!trained_) return;
  const View head_VD = gradients.head_gradient();
  if (is_last()) {
    send(0, head_VD);
    ops::zero(device_.stream(), {head_VD});
    return;
  }
  const View embedding_VD = gradients.view(parameter_);
  receive(link_.size() - 1, embedding_VD,
          [&](std::int64_t first, std::int64_t rows, const std::byte* bytes) {
            const View here = head_VD.rows(0, rows), sum = embedding_VD.rows(first, rows);
            device_.copy_from_host(here.data(), bytes, here.bytes());
            ops::add(device_.stream(), {.a = sum, .b = here, .y = sum});
          });
}

void TiedStages::share(ParameterSet& weights) {
  if (part_ == TiedPart::kWhole || !trained_) return;
  const View weight_VD = weights.view(parameter_);
  if (is_first()) return send(link_.size() - 1, weight_VD);
  receive(0, weight_VD, [&](std::int64_t first, std::int64_t rows, const std::byte* bytes) {
    const View here = weight_VD.rows(first, rows);
    device_.copy_from_host(here.data(), bytes, here.bytes());
  });
}

void TiedStages::send(int rank, const View& from) {
  std::size_t next = 0;
  for (std::int64_t first = 0; first < from.dim(0); first += rows_) {
    const View rows = from.rows(first, std::min(rows_, from.dim(0) - first));
    Piece& piece = pieces_[std::exchange(next, 1 - next)];
    link_.wait(std::exchange(piece.ticket, {}));
    device_.copy_to_host(piece.data, rows.data(), rows.bytes());
    piece.ticket = link_.send(rank, {piece.data, rows.bytes()});
  }
  for (Piece& piece : pieces_) link_.wait(std::exchange(piece.ticket, {}));
}

void TiedStages::receive(int rank, const View& like, const Arrived& arrived) {
  const auto rows_from = [&](std::int64_t first) { return std::min(rows_, like.dim(0) - first); };
  const auto expect = [&](std::int64_t first, Piece& piece) {
    if (first >= like.dim(0)) return;
    piece.ticket = link_.receive(rank, {piece.data, like.rows(first, rows_from(first)).bytes()});
  };
  std::size_t next = 0;
  expect(0, pieces_[0]);
  for (std::int64_t first = 0; first < like.dim(0); first += rows_) {
    Piece& piece = pieces_[std::exchange(next, 1 - next)];
    expect(first + rows_, pieces_[next]);
    link_.wait(std::exchange(piece.ticket, {}));
    arrived(first, rows_from(first), piece.data);
  }
}

}  // namespace longstride
