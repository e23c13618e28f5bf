// DeviceHeads: the exchange between processes that share heads, by a link that moves device memory
// (NCCL). Messages leave from tensors and go straight to their places, but for one buffer, where a
// slice is cut by process. The device's stream waits for them, the host does not.
//
// Not thread-safe: the thread that runs the step owns it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "train/shared_heads.h"

namespace longstride {

class DeviceHeads final : public HeadExchange {
 public:
  DeviceHeads(Device& device, comm::Link& link, const HeadRoom& room);
  DeviceHeads(const DeviceHeads&) = delete;
  DeviceHeads& operator=(const DeviceHeads&) = delete;
  ~DeviceHeads() override;
  static std::int64_t device_bytes(const HeadRoom& room) { return room.slice; }

  HeadShare share() const override { return {link_.size(), link_.rank()}; }
  void to_heads(ConstView x_SHC, View y_TGC) override;
  void to_tokens(ConstView y_TGC, View x_SHC) override;
  void gather(ConstView mine, View all) override;

 private:
  // Messages from and to all other processes; to(r) and from(r) say where those of process r are.
  // None is sent if it has no bytes.
  template <class To, class From>
  void start(const To& to, const From& from);
  // The device's stream waits for them. Buffers that have been sent may be written then, too.
  void settle();
  // The heads of process r, or of all processes, in the buffer.
  View in_buffer(ConstView like_TGC, std::int64_t first, std::int64_t processes) const;

  Device& device_;
  comm::Link& link_;
  HeadRoom room_;
  HeadCut cut_;
  std::unique_ptr<Memory> by_process_;  // [H / G, S, G, C]
  std::vector<comm::Ticket> tickets_;
};

}  // namespace longstride
