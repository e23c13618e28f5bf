#include "offload/transfers.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/threads.h"
#include "base/trace_spans.h"

namespace longstride {
namespace {

constexpr std::size_t kTogether = 8;  // transfers in flight
constexpr std::int64_t kRequestBytes = std::int64_t{2} << 20;
constexpr int kMostTries = 100;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

Transfers::Transfers(std::unique_ptr<BlockIo> io,
                     std::function<void(const std::exception_ptr&)> failed)
    : io_(std::move(io)), failed_(std::move(failed)), flights_(BlockIo::kMostRequests) {
  for (std::uint64_t tag = flights_.size(); tag > 0; --tag) free_flights_.push_back(tag - 1);
  thread_ = start_thread([this] { run(); });
}

Transfers::~Transfers() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  try {
    io_->wake();
  } catch (...) {
    failed_(std::current_exception());
  }
  thread_.join();
  io_.reset();  // if the thread failed, requests in flight may still access running_'s memory
}

void Transfers::start(Transfer transfer) {
  LS_CHECK(transfer.bytes % io_->alignment() == 0 && transfer.offset % io_->alignment() == 0,
           "{} bytes at {} of a file that wants multiples of {}", transfer.bytes, transfer.offset,
           io_->alignment());
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(transfer));
  }
  io_->wake();
}

DiskMoved Transfers::moved() const {
  const std::lock_guard lock(mutex_);
  return moved_;
}

void Transfers::run() {
  try {
    serve();
  } catch (...) {
    failed_(std::current_exception());
  }
}

void Transfers::serve() {
  std::vector<BlockIo::Result> results;
  for (;;) {
    const auto begin = std::chrono::steady_clock::now();
    winding_up_ = !take_up();
    if (!winding_up_) make_requests();
    const bool busy = free_flights_.size() < flights_.size();
    if (winding_up_ && !busy) return;
    io_->wait(results);
    for (const BlockIo::Result& result : results) settle(result);
    if (!busy) continue;
    const std::lock_guard lock(mutex_);
    moved_.busy_s += seconds_since(begin);
  }
}

bool Transfers::take_up() {
  const std::lock_guard lock(mutex_);
  while (!stopping_ && running_.size() < kTogether && !waiting_.empty()) {
    running_.push_back({.transfer = std::move(waiting_.front())});
    waiting_.pop_front();
  }
  return !stopping_;
}

void Transfers::make_requests() {
  for (Running& running : running_) {
    const Transfer& transfer = running.transfer;
    while (running.error == 0 && running.asked < transfer.bytes) {
      if (free_flights_.empty()) return;
      if (running.asked == 0) {
        align(running);
        if (trace_spans().on()) running.begin_ns = trace_clock_ns();
      }
      const std::uint64_t tag = free_flights_.back();
      free_flights_.pop_back();
      std::byte* const aligned = running.aligned.get();
      std::byte* const to = aligned != nullptr ? aligned : transfer.to;
      const std::byte* const from = aligned != nullptr ? aligned : transfer.from;
      const bool reads = transfer.to != nullptr;
      flights_[tag] = {.running = &running,
                       .rest = {.to = reads ? to + running.asked : nullptr,
                                .from = reads ? nullptr : from + running.asked,
                                .bytes = std::min(kRequestBytes, transfer.bytes - running.asked),
                                .offset = transfer.offset + running.asked,
                                .tag = tag}};
      running.asked += flights_[tag].rest.bytes;
      ++running.requests;
      io_->submit(flights_[tag].rest);
    }
  }
}

void Transfers::align(Running& running) const {
  const Transfer& transfer = running.transfer;
  const void* const memory = transfer.to != nullptr ? transfer.to : transfer.from;
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  if (address % static_cast<std::uintptr_t>(io_->alignment()) == 0) return;
  running.aligned = aligned_memory(transfer.bytes);
  if (transfer.from != nullptr)
    std::memcpy(running.aligned.get(), transfer.from, static_cast<std::size_t>(transfer.bytes));
}

void Transfers::settle(const BlockIo::Result& result) {
  Flight& flight = flights_[result.tag];
  LS_CHECK(flight.running != nullptr && result.moved <= flight.rest.bytes,
           "{} bytes have moved that nobody asked for", result.moved);
  int error = 0;
  if (result.moved > 0) {
    go_on(flight, result.moved);
  } else if (result.moved == 0) {
    error = flight.rest.to != nullptr ? ENODATA : ENOSPC;
  } else if (result.moved == -EINTR || result.moved == -EAGAIN) {
    ++flight.tries;
  } else {
    error = static_cast<int>(-result.moved);
  }
  if (flight.tries > kMostTries) error = EIO;

  Running& running = *flight.running;
  if (error == 0 && winding_up_ && flight.rest.bytes > 0) error = ECANCELED;
  if (running.error == 0) running.error = error;
  if (flight.rest.bytes > 0 && running.error == 0) {
    io_->submit(flight.rest);
    return;
  }
  flight.running = nullptr;
  free_flights_.push_back(result.tag);
  --running.requests;
  if (running.requests == 0 && (running.error != 0 || running.asked == running.transfer.bytes))
    end(running);
}

void Transfers::go_on(Flight& flight, std::int64_t moved) {
  BlockIo::Request& rest = flight.rest;
  const bool reads = rest.to != nullptr;
  // After a short direct request, the rest must start at an aligned offset again.
  if (moved < rest.bytes) moved -= moved % io_->alignment();
  flight.tries = moved > 0 ? 0 : flight.tries + 1;
  rest.bytes -= moved;
  rest.offset += moved;
  if (reads)
    rest.to += moved;
  else
    rest.from += moved;
  const std::lock_guard lock(mutex_);
  (reads ? moved_.read : moved_.written) += moved;
}

void Transfers::end(Running& running) {
  Transfer& transfer = running.transfer;
  if (transfer.to != nullptr && running.aligned != nullptr && running.error == 0)
    std::memcpy(transfer.to, running.aligned.get(), static_cast<std::size_t>(transfer.bytes));
  if (running.begin_ns > 0 && trace_spans().on())
    trace_spans().add({TraceTrack::kDisk,
                       {.what = transfer.to != nullptr ? "read" : "write", .bytes = transfer.bytes},
                       running.begin_ns,
                       trace_clock_ns()});
  const int error = running.error;
  const std::function<void(int)> ended = std::move(transfer.ended);
  running_.remove_if([&](const Running& other) { return &other == &running; });
  ended(error);
}

}  // namespace longstride
