// The neighbours of a stage over a link: the stage before is the rank before, the one after the
// rank after. Tensors go through host memory. Receives are started ahead, so that messages cross
// the link while the stage computes.
//
// Not thread-safe: the thread that runs the step owns it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/link.h"
#include "device/device.h"
#include "model/neighbours.h"

namespace longstride {

class LinkedStages : public Neighbours {
 public:
  // Messages that may be on their way to this stage, and from it.
  static constexpr std::int64_t kComing = 2, kLeaving = 2;

  // `most_bytes`: of a chunk's tensor. Device and link must outlive it.
  LinkedStages(Device& device, comm::Link& link, std::int64_t most_bytes);
  ~LinkedStages() override;
  // Of host memory, that one takes.
  static std::int64_t host_bytes(std::int64_t most_bytes) {
    return (kComing + kLeaving) * most_bytes;
  }
  LinkedStages(const LinkedStages&) = delete;
  LinkedStages& operator=(const LinkedStages&) = delete;

  void begin(std::span<const Coming> all) override;
  void receive(View x_TD) override { receive_next(false, x_TD); }
  void send_gradient(ConstView dx_TD) override { send_to(link_.rank() - 1, dx_TD); }
  void send(ConstView x_TD) override { send_to(link_.rank() + 1, x_TD); }
  void receive_gradient(View dx_TD) override { receive_next(true, dx_TD); }
  // Waits until everything has left, and takes back receives whose messages will not come. After
  // every sequence, and after one that all stages have left at the same point.
  void finish();

 private:
  struct Buffer {
    std::vector<std::byte> bytes;
    comm::Ticket ticket;
  };
  void receive_next(bool is_gradient, View tensor);
  void send_to(int rank, ConstView tensor);
  // Starts the next receives, while there are buffers.
  void start_receives();
  Buffer& coming(std::size_t number) { return coming_[number % kComing]; }

  Device& device_;
  comm::Link& link_;
  std::array<Buffer, kLeaving> leaving_;
  std::size_t sent_ = 0;
  std::array<Buffer, kComing> coming_;
  std::vector<Coming> all_coming_;       // in the sequence
  std::size_t started_ = 0, taken_ = 0;  // of them
};

}  // namespace longstride
