// Tensors between stages: right in every order of copies, with every wait for them needed, and
// stopped anywhere.
#include "train/message_port.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <map>
#include <thread>

#include "base/trace_spans.h"
#include "comm/control.h"
#include "comm/thread_link.h"
#include "tests/offload/wait_sites.h"
#include "tests/train/watched_device.h"
#include "train/linked_stages.h"

namespace longstride {
namespace {

constexpr std::int64_t kChunks = 6, kTokens = 40, kHidden = 24;

std::int64_t tokens_of(std::int64_t chunk) { return chunk + 1 == kChunks ? 7 : kTokens; }
float value_of(std::int64_t chunk, std::int64_t i) {
  return static_cast<float>(chunk * 10'000 + i);
}

// The messages of a link are accesses of the host, to the memory of copies.
class WatchedLink final : public comm::Link {
 public:
  WatchedLink(comm::Link& link, WatchedDevice& device) : link_(link), device_(device) {}
  int rank() const override { return link_.rank(); }
  int size() const override { return link_.size(); }
  bool moves(comm::MemoryKind kind) const override { return link_.moves(kind); }
  bool done(comm::Ticket ticket) override { return link_.done(ticket); }
  void wait(comm::Ticket ticket) override { link_.wait(ticket); }
  bool withdraw(comm::Ticket ticket) override { return link_.withdraw(ticket); }
  void abandon() noexcept override { link_.abandon(); }
  comm::ByteCounters counters() const override { return link_.counters(); }
  comm::Ticket start_send(int to, comm::SendBuffer buffer, comm::Traffic traffic) override {
    if (buffer.memory == comm::MemoryKind::kPinned)
      device_.last_mover->host_accesses(buffer.data, buffer.bytes, false);
    return link_.start_send(to, buffer, traffic);
  }
  comm::Ticket start_receive(int from, comm::ReceiveBuffer buffer, comm::Traffic traffic) override {
    if (buffer.memory == comm::MemoryKind::kPinned)
      device_.last_mover->host_accesses(buffer.data, buffer.bytes, true);
    return link_.start_receive(from, buffer, traffic);
  }

 private:
  comm::Link& link_;
  WatchedDevice& device_;
};

// A stage that adds 1 to what it passes on, forward and then back.
class AddingStage {
 public:
  AddingStage(Device& device, comm::Link& link)
      : device_(device),
        first_(link.rank() == 0),
        last_(link.rank() + 1 == link.size()),
        neighbours_(device, link, kTokens * kHidden * 4),
        memory_(device.allocate(kTokens * kHidden * 4, "tensor")) {}

  // Leaves before so many chunks, counting both passes, have been worked on. Returns how many
  // values were wrong at the pipeline's ends.
  std::int64_t run(std::int64_t chunks = 2 * kChunks) {
    std::vector<Neighbours::Coming> coming;
    for (std::int64_t c = 0; c < kChunks && !first_; ++c)
      coming.push_back({false, tensor_of(c).bytes()});
    for (std::int64_t c = kChunks; c-- > 0 && !last_;)
      coming.push_back({true, tensor_of(c).bytes()});
    neighbours_.begin(coming);
    std::int64_t wrong = 0, left = chunks;
    for (std::int64_t c = 0; c < kChunks && left-- > 0; ++c) {
      if (first_)
        fill(c, 0);
      else
        neighbours_.receive(tensor_of(c));
      pass_on(c);
      if (last_)
        wrong += differing(c, stages_);
      else
        neighbours_.send(tensor_of(c));
    }
    for (std::int64_t c = kChunks; c-- > 0 && left-- > 0;) {
      if (last_)
        fill(c, stages_);
      else
        neighbours_.receive_gradient(tensor_of(c));
      pass_on(c);
      if (first_)
        wrong += differing(c, 2 * stages_);
      else
        neighbours_.send_gradient(tensor_of(c));
    }
    if (chunks == 2 * kChunks) neighbours_.end();
    return wrong;
  }
  void finish() { neighbours_.finish(); }
  void count_stages(int stages) { stages_ = static_cast<float>(stages); }

 private:
  View tensor_of(std::int64_t chunk) const {
    return {memory_->data(), DType::kF32, Shape({tokens_of(chunk), kHidden})};
  }
  void fill(std::int64_t chunk, float more) {
    const View tensor = tensor_of(chunk);
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
      tensor.as<float>()[i] = value_of(chunk, i) + more;
  }
  void pass_on(std::int64_t chunk) {
    const View tensor = tensor_of(chunk);
    for (std::int64_t i = 0; i < tensor.elements(); ++i) tensor.as<float>()[i] += 1;
  }
  std::int64_t differing(std::int64_t chunk, float more) const {
    const View tensor = tensor_of(chunk);
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
      wrong += tensor.as<float>()[i] != value_of(chunk, i) + more;
    return wrong;
  }

  Device& device_;
  bool first_, last_;
  float stages_ = 0;
  LinkedStages neighbours_;
  std::unique_ptr<Memory> memory_;  // of one tensor: used again at once
};

struct Noticed {
  std::int64_t wrong = 0, races = 0, copies = 0;
  bool threw = false;
  bool anything() const { return wrong > 0 || races > 0 || threw; }
};

using Body = std::function<std::int64_t(comm::Link&, AddingStage&)>;

// `body` on every stage, with late copies on devices that have memory of their own.
Noticed run_staged(int ranks, std::uint64_t seed, const WaitSite* left_out, const Body& body) {
  Noticed all;
  std::mutex mutex;
  comm::ThreadHub hub(ranks);
  const auto failures = comm::run_thread_ranks(hub, {}, [&](comm::MessageLink& plain) {
    WatchedDevice device;
    device.has_own_memory = true;
    device.watch.seed = seed + 100 * static_cast<std::uint64_t>(plain.rank());
    device.watch.left_out = left_out;
    WatchedLink link(plain, device);
    AddingStage stage(device, link);
    stage.count_stages(ranks);
    const std::int64_t wrong = body(link, stage);
    const std::scoped_lock lock(mutex);
    all.wrong += wrong;
    all.races += device.watch.races;
    all.copies += device.watch.copies;
  });
  for (const std::exception_ptr& failure : failures) {
    if (failure == nullptr) continue;
    all.threw = true;
    if (left_out == nullptr) std::rethrow_exception(failure);
  }
  return all;
}

std::int64_t two_sequences(comm::Link& /*link*/, AddingStage& stage) {
  std::int64_t wrong = 0;
  for (int sequence = 0; sequence < 2; ++sequence) wrong += stage.run();
  stage.finish();
  return wrong;
}

TEST(MessagePort, LateCopiesDeliverEveryTensor) {
  for (const int ranks : {2, 3, 4})
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
      const Noticed noticed = run_staged(ranks, seed, nullptr, two_sequences);
      EXPECT_EQ(noticed.wrong, 0) << ranks << " ranks, seed " << seed;
      EXPECT_EQ(noticed.races, 0) << ranks << " ranks, seed " << seed;
      // Out and in at every boundary, both ways.
      EXPECT_EQ(noticed.copies, 2 * 2 * 2 * kChunks * (ranks - 1));
    }
}

// What follows a sequence does not overtake its messages, though nobody has waited for them.
TEST(MessagePort, OtherMessagesComeAfterThoseOfASequence) {
  const auto then_agree = [](comm::Link& link, AddingStage& stage) {
    std::int64_t wrong = 0;
    for (int sequence = 0; sequence < 5; ++sequence) {
      wrong += stage.run();
      EXPECT_EQ(comm::largest(link, 10 * sequence + link.rank()), 10 * sequence + link.size() - 1);
    }
    stage.finish();
    return wrong;
  };
  for (std::uint64_t seed = 0; seed < 10; ++seed)
    EXPECT_EQ(run_staged(2, seed, nullptr, then_agree).wrong, 0) << seed;
}

// Small messages are not.
TEST(MessagePort, IsTraced) {
  trace_spans().start(10'000);
  run_staged(2, 1, nullptr, two_sequences);
  std::map<std::string, std::int64_t> count;
  for (const Span& span : trace_spans().stop().spans) {
    if (span.track != TraceTrack::kMessages) continue;
    ++count[text_of(span.name)];
    EXPECT_LE(span.begin_ns, span.end_ns);
    if (span.name.bytes >= 0) {
      EXPECT_EQ(span.name.bytes, kTokens * kHidden * 4);
    }
  }
  for (const char* what :
       {"send to rank 0", "send to rank 1", "receive from rank 0", "receive from rank 1"})
    EXPECT_EQ(count[what], 2 * (kChunks - 1)) << what;
  EXPECT_GE(count["wait for rank 0"], 2 * kChunks);
  EXPECT_GE(count["wait for rank 1"], 2 * kChunks);
}

TEST(MessagePort, NoWaitCanBeLeftOut) {
  for (const WaitSite* site : wait_sites_of("messages")) {
    // What another thread happens to wait for may hide a race, so try again.
    bool noticed = false;
    for (std::uint64_t seed = 0; seed < 20 && !noticed; ++seed)
      noticed = run_staged(2, seed, site, two_sequences).anything();
    EXPECT_TRUE(noticed) << site->name();
  }
}

// All stages leave at the same chunk: receives that were started ahead are taken back, and what
// comes next is not taken for their messages.
std::int64_t stopped_everywhere(comm::Link& link, AddingStage& stage) {
  std::int64_t wrong = 0;
  comm::StopVotes votes(link, 1);
  for (std::int64_t stop = 0; stop <= 2 * kChunks; ++stop) {
    wrong += stage.run(stop);
    stage.finish();
    votes.pass(0);
    votes.finish();
    EXPECT_EQ(comm::largest(link, static_cast<int>(10 * stop + link.rank())),
              10 * stop + link.size() - 1);
    wrong += stage.run();
  }
  stage.finish();
  return wrong;
}

TEST(MessagePort, AStopLeavesNothingBehind) {
  for (const int ranks : {2, 3}) {
    const Noticed noticed = run_staged(ranks, 5, nullptr, stopped_everywhere);
    EXPECT_EQ(noticed.wrong + noticed.races, 0) << ranks;
    // On a device that is host memory too.
    std::atomic<std::int64_t> wrong{0};
    comm::ThreadHub hub(ranks);
    for (const auto& failure : comm::run_thread_ranks(hub, {}, [&](comm::MessageLink& link) {
           const auto device = make_cpu_device();
           AddingStage stage(*device, link);
           stage.count_stages(ranks);
           wrong += stopped_everywhere(link, stage);
         }))
      EXPECT_EQ(failure, nullptr);
    EXPECT_EQ(wrong, 0) << ranks;
  }
}

TEST(MessagePort, TakesThePlannedBytes) {
  comm::ThreadHub hub(1);
  for (const auto& failure : comm::run_thread_ranks(hub, {}, [&](comm::MessageLink& link) {
         WatchedDevice device;
         for (const bool own : {false, true}) {
           device.has_own_memory = own;
           const PortBytes planned = message_port_bytes(device, 1000);
           const std::int64_t before = device.allocated_bytes();
           const auto port = make_message_port(device, link, 1000);
           EXPECT_EQ(device.allocated_bytes() - before, planned.host + planned.device);
           EXPECT_EQ(planned.device, own ? 2 * 1024 : 0);
           EXPECT_EQ(planned.host, own ? 4 * 1024 : 4 * 1000);
         }
       }))
    EXPECT_EQ(failure, nullptr);
}

// A device whose copies fail.
class FailingMover final : public Mover {
 public:
  explicit FailingMover(std::unique_ptr<Mover> mover) : mover_(std::move(mover)) {}
  Fence fence(Lane lane) override { return {lane, ++fences_}; }
  void wait(Lane, Fence, const WaitSite&) override {}
  void wait_on_host(Fence fence, const WaitSite&) override {
    if (fence.number > 0) throw Error("the copy has failed", "");
  }
  void copy(Lane lane, std::span<const Copy> copies) override { mover_->copy(lane, copies); }
  void finish() override { mover_->finish(); }
  MoveTimes take_times() override { return {}; }

 private:
  std::unique_ptr<Mover> mover_;
  std::uint64_t fences_ = 0;
};

// The stage waits for an answer to a message that could not be sent: it learns why.
TEST(MessagePort, AFailedCopyEndsTheWait) {
  std::atomic<int> told{0};
  comm::ThreadHub hub(2);
  comm::LinkOptions options;
  options.timeout_seconds = 60;
  options.ending_seconds = 0.2;
  const auto begin = std::chrono::steady_clock::now();
  comm::run_thread_ranks(hub, options, [&](comm::MessageLink& link) {
    WatchedDevice device;
    device.has_own_memory = true;
    if (link.rank() == 0)
      device.change_mover = [](std::unique_ptr<Mover> mover) {
        return std::make_unique<FailingMover>(std::move(mover));
      };
    AddingStage stage(device, link);
    try {
      stage.run();
    } catch (const Error& e) {
      if (std::string(e.what()).find("the copy has failed") != std::string::npos) ++told;
      throw;
    }
  });
  EXPECT_EQ(told, 1);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

}  // namespace
}  // namespace longstride
