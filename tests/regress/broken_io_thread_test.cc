// What broke on a thread of the disk queue ended the process by std::terminate; it belongs to
// whoever waits for the disk.
#include <atomic>
#include <future>
#include <new>

#include "base/serial_worker.h"
#include "tests/offload/disk_queue_fixture.h"

namespace longstride {
namespace {

using Request = BlockIo::Request;
using Result = BlockIo::Result;
using Ticket = DiskQueue::Ticket;

class BrokenIoThread : public DiskKinds {};
INSTANTIATE_TEST_SUITE_P(Io, BrokenIoThread, kEveryKind, kind_name);

TEST_P(BrokenIoThread, ABrokenInvariantReachesWhoWaits) {
  std::atomic<bool> broken = false;
  open(3, kBytes, {.after = [&broken](const Request& request, Result& result) {
         if (broken) result.moved = request.bytes + 1;  // more than was asked for
       }});
  if (queue_ == nullptr) return;
  write(0, 1);
  broken = true;
  const Buffer to(kBytes), from(kBytes);
  const Ticket read = queue_->read(0, to.data()), written = queue_->write(1, from.data(), {});
  EXPECT_THROW(queue_->wait(read), InternalError);
  EXPECT_THROW(queue_->wait(written), InternalError);
  EXPECT_THROW(queue_->done(read), InternalError);
  // Nothing is begun any more; the queue goes in peace.
  EXPECT_THROW(queue_->write(2, from.data(), {}), InternalError);
  EXPECT_THROW(queue_->read(0, to.data()), InternalError);
  queue_.reset();
}

TEST_P(BrokenIoThread, SoDoesAnythingThatIsThrown) {
  open(1, kBytes, {.before = [](Request&) { throw std::bad_alloc(); }});
  if (queue_ == nullptr) return;
  const Buffer from(kBytes);
  const Ticket ticket = queue_->write(0, from.data(), {});
  EXPECT_THROW(queue_->wait(ticket), std::bad_alloc);
}

TEST(BrokenSerialWorker, TheOwnerGetsWhatATaskThrows) {
  std::promise<std::exception_ptr> thrown;
  std::promise<void> next;
  SerialWorker worker([&](const std::exception_ptr& e) { thrown.set_value(e); });
  worker.post([] { throw Error("broken"); });
  worker.post([&] { next.set_value(); });
  EXPECT_THROW(std::rethrow_exception(thrown.get_future().get()), Error);
  next.get_future().wait();  // the thread lives
}

}  // namespace
}  // namespace longstride
