// Wire: what a MessageLink needs of a library or of shared memory. It carries notes (small, copied,
// in order between two ranks) and parts (larger, in place, in order between two ranks), checks no
// sizes and waits for nothing.
//
// All calls come from one thread, that which made it: MPI wants that. Calls throw Error if the
// library reports one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace longstride::comm {

class Wire {
 public:
  using Request = std::uint64_t;
  struct Arrived {
    int from = 0;
    std::vector<std::byte> note;
  };
  virtual ~Wire() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  virtual void send_note(int to, std::vector<std::byte> note) = 0;
  // Those to this rank that have not left yet.
  virtual int notes_under_way(int to) const = 0;
  virtual std::optional<Arrived> next_note() = 0;

  // At most 1 GiB each. The n-th part sent to a rank is the n-th that it receives from here.
  virtual Request send(int to, const std::byte* data, std::int64_t bytes) = 0;
  virtual Request receive(int from, std::byte* data, std::int64_t bytes) = 0;
  // Once true, the request is forgotten.
  virtual bool done(Request request) = 0;
  // Forgets the request. A buffer to receive is not written any more.
  virtual void cancel(Request request) = 0;

  // An orderly end, once all ranks have agreed on it. May wait for them.
  virtual void close() = 0;
  // Ends the processes of all ranks, if they are processes. May not return.
  virtual void abort(int status) = 0;
};
using MakeWire = std::function<std::unique_ptr<Wire>()>;

}  // namespace longstride::comm
