// A tied embedding in a pipeline: the first stage has it for the lookup, trains and saves it; the
// last one has a copy of its weight as head, and the gradient of that (model/stage_parts.h). Here
// the two meet, over the link of the pipeline, whose ranks are the stages in their order: rank 0 is
// the first stage, rank size() - 1 the last one. Bits are those of one process.
//
// All stages make one and call fold and share at the same places of a step; in the stages between,
// for other models, and for a tied embedding that is frozen, they do nothing. Where one stage is
// the whole model, fold is add_head_gradient, so a pipeline needs no other call.
//
// A step: sequences, fold, norm and clipping, update, share. A step whose update is skipped
// needs no share; then it is skipped in all stages. At the start the copy is read from the same
// file, or drawn by the same number (ParameterSpec::number).
//
// Not thread-safe: the thread that runs the step owns it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "comm/link.h"
#include "device/device.h"
#include "model/parameters.h"

namespace longstride {

class TiedStages {
 public:
  // `parameters`: of this stage. Device and link must outlive it. Takes host memory for two pieces
  // of about 16 MiB in the first and the last stage; on the device the gradients of the first one
  // have room for a piece (ParameterSet::head_gradient), which is planned with them.
  TiedStages(Device& device, comm::Link& link, const std::vector<ParameterSpec>& parameters);
  ~TiedStages();
  // Of host memory, that one takes.
  static std::int64_t host_bytes(const std::vector<ParameterSpec>& parameters);
  TiedStages(const TiedStages&) = delete;
  TiedStages& operator=(const TiedStages&) = delete;

  // After the last sequence of a step, before gradients are read, once their messages have left
  // (LinkedStages::finish): gradient of the embedding += that of the head, which is 0 then.
  void fold(ParameterSet& gradients);
  // After an update: the copy becomes the new weight.
  void share(ParameterSet& weights);

  // Bytes that this stage sends in fold and in share: to be added to those of the chunks.
  std::int64_t fold_bytes() const;
  std::int64_t share_bytes() const;

 private:
  bool is_first() const { return part_ == TiedPart::kLookup; }
  bool is_last() const { return part_ == TiedPart::kHeadCopy; }
  void send(int rank, const View& from);
  // Calls arrived(first row, rows, bytes) for every piece.
  using Arrived = std::function<void(std::int64_t, std::int64_t, const std::byte*)>;
  void receive(int rank, const View& like, const Arrived& arrived);

  Device& device_;
  comm::Link& link_;
  TiedPart part_ = TiedPart::kWhole;
  bool trained_ = false;
  std::int64_t parameter_ = -1;  // in the lists of the stage
  std::int64_t rows_ = 0;        // of a piece
  std::int64_t fold_bytes_ = 0, share_bytes_ = 0;
  struct Piece {
    std::byte* data = nullptr;
    comm::Ticket ticket;
  };
  std::unique_ptr<Memory> memory_;  // for quick copies to and from the device
  std::array<Piece, 2> pieces_;     // one is under way while the other is filled or used
};

}  // namespace longstride
