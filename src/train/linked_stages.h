// The neighbours of a stage over a link: the stage before is the rank before, the one after the
// rank after. Tensors go through host memory.
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
  // `most_bytes`: of a chunk's tensor. Device and link must outlive it.
  LinkedStages(Device& device, comm::Link& link, std::int64_t most_bytes);
  ~LinkedStages() override;
  // Of host memory, that one takes.
  static std::int64_t host_bytes(std::int64_t most_bytes) { return 3 * most_bytes; }
  LinkedStages(const LinkedStages&) = delete;
  LinkedStages& operator=(const LinkedStages&) = delete;

  void receive(View x_TD) override { receive_from(link_.rank() - 1, x_TD); }
  void send_gradient(ConstView dx_TD) override { send_to(link_.rank() - 1, dx_TD); }
  void send(ConstView x_TD) override { send_to(link_.rank() + 1, x_TD); }
  void receive_gradient(View dx_TD) override { receive_from(link_.rank() + 1, dx_TD); }
  // Waits until everything has left. After every sequence.
  void finish();

 private:
  // Two that are sent may be under way: the stage goes on with the next chunk meanwhile.
  struct Leaving {
    std::vector<std::byte> bytes;
    comm::Ticket ticket;
  };
  void receive_from(int rank, View tensor);
  void send_to(int rank, ConstView tensor);

  Device& device_;
  comm::Link& link_;
  std::array<Leaving, 2> leaving_;
  std::size_t next_ = 0;
  std::vector<std::byte> coming_;
};

}  // namespace longstride
