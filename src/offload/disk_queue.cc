#include "offload/disk_queue.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/files.h"

namespace longstride {
namespace {

std::uint64_t checksum_of(const std::byte* memory, std::int64_t bytes) {
  return checksum_of_text({reinterpret_cast<const char*>(memory), static_cast<std::size_t>(bytes)});
}

std::shared_ptr<OffloadFile> make_file(const std::filesystem::path& directory, std::int64_t blocks,
                                       std::int64_t block_bytes, const std::string& what) {
  LS_CHECK(blocks > 0 && block_bytes > 0, "{} blocks of {} bytes on disk", blocks, block_bytes);
  return std::make_shared<OffloadFile>(directory, blocks * block_bytes, what);
}

}  // namespace

DiskQueue::DiskQueue(const std::filesystem::path& directory, std::int64_t blocks,
                     std::int64_t block_bytes, const std::string& what)
    : DiskQueue(open_block_io(make_file(directory, blocks, block_bytes, what), block_bytes),
                directory, blocks, block_bytes, what) {}

DiskQueue::DiskQueue(OpenedIo opened, const std::filesystem::path& directory, std::int64_t blocks,
                     std::int64_t block_bytes, const std::string& what)
    : where_(directory.string()),
      what_(what),
      why_not_better_(std::move(opened.why_not_better)),
      block_bytes_(block_bytes),
      blocks_(static_cast<std::size_t>(blocks)),
      summing_{SerialWorker(breaking()), SerialWorker(breaking()), SerialWorker(breaking()),
               SerialWorker(breaking())},
      transfers_(std::move(opened.io), breaking()),
      preparing_(breaking()) {}

DiskQueue::~DiskQueue() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
}

std::function<void(const std::exception_ptr&)> DiskQueue::breaking() {
  return [this](const std::exception_ptr& failure) { break_down(failure); };
}

void DiskQueue::break_down(const std::exception_ptr& failure) {
  const std::lock_guard lock(mutex_);
  if (!broken_) broken_ = failure;
  changed_.notify_all();
}

DiskQueue::Job& DiskQueue::add(std::int64_t block) {
  if (broken_) std::rethrow_exception(broken_);
  auto job = std::make_unique<Job>();
  job->ticket = next_ticket_++;
  job->block = block;
  blocks_[static_cast<std::size_t>(block)].jobs.push_back(job.get());
  return *(jobs_[job->ticket] = std::move(job));
}

DiskQueue::Ticket DiskQueue::write(std::int64_t block, const std::byte* from,
                                   std::function<void()> ready) {
  LS_CHECK(block >= 0 && block < std::ssize(blocks_), "{}: block {} of {}", what_, block,
           blocks_.size());
  const std::lock_guard lock(mutex_);
  Job& job = add(block);
  job.from = from;
  blocks_[static_cast<std::size_t>(block)].written = true;
  preparing_.post([this, &job, ready = std::move(ready)] { prepare(job, ready); });
  return job.ticket;
}

DiskQueue::Ticket DiskQueue::read(std::int64_t block, std::byte* to) {
  LS_CHECK(block >= 0 && block < std::ssize(blocks_), "{}: block {} of {}", what_, block,
           blocks_.size());
  const std::lock_guard lock(mutex_);
  Block& of = blocks_[static_cast<std::size_t>(block)];
  LS_CHECK(of.written, "{}: block {} is read and was never written", what_, block);
  Job& job = add(block);
  job.to = to;
  job.ready = true;
  const Ticket ticket = job.ticket;
  advance(of);  // may finish and free the job
  return ticket;
}

bool DiskQueue::done(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  LS_CHECK(ticket > 0 && ticket < next_ticket_, "{}: no such ticket: {}", what_, ticket);
  if (const auto failed = failures_.find(ticket); failed != failures_.end())
    std::rethrow_exception(failed->second);
  if (!jobs_.contains(ticket)) return true;
  if (broken_) std::rethrow_exception(broken_);
  return false;
}

void DiskQueue::wait(Ticket ticket) {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return broken_ || !jobs_.contains(ticket); });
  }
  done(ticket);
}

std::string DiskQueue::description() const {
  const std::string io = transfers_.io().description();
  return why_not_better_.empty() ? io : fmt::format("{} ({})", io, why_not_better_);
}

SerialWorker& DiskQueue::summing(const Job& job) {
  return summing_[static_cast<std::size_t>(job.block) % summing_.size()];
}

void DiskQueue::prepare(Job& job, const std::function<void()>& ready) {
  try {
    if (ready) ready();
  } catch (...) {
    set_ready(job, 0, std::current_exception());
    return;
  }
  summing(job).post([this, &job] { set_ready(job, checksum_of(job.from, block_bytes_), nullptr); });
}

void DiskQueue::set_ready(Job& job, std::uint64_t checksum, const std::exception_ptr& failure) {
  const std::lock_guard lock(mutex_);
  job.checksum = checksum;
  job.failure = failure;
  job.ready = true;
  advance(blocks_[static_cast<std::size_t>(job.block)]);
}

void DiskQueue::advance(Block& block) {
  while (!stopping_ && !block.jobs.empty()) {
    Job& job = *block.jobs.front();
    if (!job.ready || job.started) return;
    job.started = true;
    const bool reads = job.to != nullptr;
    if (const std::exception_ptr failure = reads ? block.failure : job.failure) {
      remove(job, failure);
      continue;
    }
    if (reads) job.checksum = block.checksum;
    transfers_.start({.to = job.to,
                      .from = job.from,
                      .bytes = block_bytes_,
                      .offset = job.block * block_bytes_,
                      .ended = [this, &job](int error) { transferred(job, error); }});
  }
}

void DiskQueue::transferred(Job& job, int error) {
  if (error != 0) {
    const char* const reason = error == ENODATA
                                   ? "the file has become shorter"
                                   : std::strerror(error);  // NOLINT(concurrency-mt-unsafe)
    finish(job, std::make_exception_ptr(Error(
                    fmt::format("{}: {} could not be {}: {}", where_, what_,
                                job.to != nullptr ? "read back" : "written", reason),
                    "check the disk of memory.disk_path, or choose another directory; the run can "
                    "be resumed from its last checkpoint")));
  } else if (job.to != nullptr) {
    // On another thread, so that this one keeps requests going.
    summing(job).post([this, &job] { verify(job); });
  } else {
    finish(job, nullptr);
  }
}

void DiskQueue::verify(Job& job) {
  std::exception_ptr failure;
  if (checksum_of(job.to, block_bytes_) != job.checksum)
    failure = std::make_exception_ptr(Error(
        fmt::format("{}: a block read back from {} differs from what was written", what_, where_),
        "the disk of memory.disk_path is faulty: choose another and resume from the last "
        "checkpoint"));
  finish(job, failure);
}

void DiskQueue::finish(Job& job, const std::exception_ptr& failure) {
  const std::lock_guard lock(mutex_);
  Block& block = blocks_[static_cast<std::size_t>(job.block)];
  remove(job, failure);
  advance(block);
}

void DiskQueue::remove(Job& job, const std::exception_ptr& failure) {
  Block& block = blocks_[static_cast<std::size_t>(job.block)];
  LS_CHECK(block.jobs.front() == &job, "{}: block {}: a job ends out of turn", what_, job.block);
  block.jobs.erase(block.jobs.begin());
  if (job.from != nullptr) {
    block.checksum = job.checksum;
    block.failure = failure;
  }
  const Ticket ticket = job.ticket;
  if (failure) failures_[ticket] = failure;
  jobs_.erase(ticket);
  changed_.notify_all();
}

}  // namespace longstride
