// longstride bench link: whether the ranks of a group receive the right bytes from each other, and
// how fast.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/sizes.h"
#include "base/thread_pool.h"
#include "cli/bench.h"
#include "cli/failure.h"
#include "cli/usage.h"
#include "comm/launch.h"
#include "comm/link_check.h"
#include "comm/link_choice.h"
#include "comm/mpi_wire.h"
#include "comm/thread_link.h"

namespace longstride::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::vector<std::string> bytes = {"0", "1", "4097", "1M", "64M"};
  double seconds = 0.2, timeout = 60;
  std::string link = "mpi", json;
};

// What is measured: the link, and where its buffers are.
struct Measured {
  comm::Link& link;
  comm::CheckMemory memory;
  std::string device, library;
  std::vector<std::pair<int, int>> pairs;  // of ranks, to be measured
};
// Every pair of several ranks; one rank with itself.
std::vector<std::pair<int, int>> all_pairs(int ranks) {
  std::vector<std::pair<int, int>> pairs;
  for (int a = 0; a < ranks; ++a)
    for (int b = ranks == 1 ? 0 : a + 1; b < ranks; ++b) pairs.emplace_back(a, b);
  return pairs;
}

std::vector<std::pair<int, int>> neighbours(int ranks) {
  std::vector<std::pair<int, int>> pairs;
  for (int a = 0; a + 1 < ranks; ++a) pairs.emplace_back(a, a + 1);
  return pairs;
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Seconds that a message takes from rank a to rank b, known to all ranks: a sends, b answers, as
// often as fits in `seconds`. Of a rank to itself: both at once.
double time_pair(comm::Link& link, int a, int b, comm::CheckBuffer& buffer,
                 comm::CheckBuffer& answer, double seconds) {
  const auto there_and_back = [&](std::int64_t times) {
    for (std::int64_t i = 0; i < times; ++i)
      if (link.rank() == a) {
        const comm::Ticket back = link.receive(b, answer.in());
        link.wait(link.send(b, buffer.out()));
        link.wait(back);
      } else {
        link.wait(link.receive(a, answer.in()));
        link.wait(link.send(a, answer.out()));
      }
  };
  double taken = 0;
  if (link.rank() == a || link.rank() == b) {
    there_and_back(1);
    const auto first = Clock::now();
    there_and_back(1);
    std::int64_t times = std::clamp<std::int64_t>(
        std::llround(seconds / std::max(seconds_since(first), 1e-7)), 1, 1'000'000);
    if (a != b && link.rank() == a) link.wait(link.send(b, comm::send_buffer(times)));
    if (a != b && link.rank() == b) link.wait(link.receive(a, comm::receive_buffer(times)));
    const auto begin = Clock::now();
    there_and_back(times);
    taken = seconds_since(begin) / ((a == b ? 1 : 2) * static_cast<double>(times));
  }
  link.broadcast(a, comm::receive_buffer(taken));
  return taken;
}

OrderedJson measure(const Measured& measured, const std::vector<std::int64_t>& sizes,
                    const Options& o) {
  comm::Link& link = measured.link;
  const bool tells = link.rank() == 0;
  for (const std::int64_t bytes : sizes) {
    comm::check_link(link, bytes, measured.memory);
    if (tells)
      log_info("{:>11} bytes: messages, all_to_all, all_gather, broadcast and barrier are right",
               bytes);
  }
  OrderedJson rows = OrderedJson::array();
  if (tells) log_info("{:>5} {:>4} {:>11} {:>12} {:>9}", "from", "to", "bytes", "us", "GB/s");
  for (const auto& [a, b] : measured.pairs)
    for (const std::int64_t bytes : sizes) {
      comm::CheckBuffer buffer(measured.memory, bytes), answer(measured.memory, bytes);
      const double taken = time_pair(link, a, b, buffer, answer, o.seconds);
      const double rate = static_cast<double>(bytes) / taken / 1e9;
      if (tells) log_info("{:>5} {:>4} {:>11} {:>12.2f} {:>9.3f}", a, b, bytes, taken * 1e6, rate);
      rows.push_back({{"operation", "message"},
                      {"from", a},
                      {"to", b},
                      {"bytes", bytes},
                      {"seconds", taken},
                      {"gb_per_s", rate}});
    }
  return rows;
}

int report(comm::MessageLink& link, const Measured& measured,
           const std::vector<std::int64_t>& sizes, const Options& o) {
  if (link.rank() == 0) {
    log_info("{} rank{}, {}, {}", link.size(), link.size() == 1 ? "" : "s", measured.library,
             measured.device);
    for (int rank = 0; rank < link.size(); ++rank) log_info("rank {} on {}", rank, link.host(rank));
  }
  OrderedJson hosts = OrderedJson::array();
  for (int rank = 0; rank < link.size(); ++rank) hosts.push_back(link.host(rank));
  const OrderedJson rows = measure(measured, sizes, o);
  if (link.rank() != 0) return 0;
  const comm::ByteCounters counters = measured.link.counters();
  return write_bench_json(o.json, {{"device", measured.device},
                                   {"threads", thread_count()},
                                   {"library", measured.library},
                                   {"ranks", link.size()},
                                   {"hosts", hosts},
                                   {"bytes_sent", counters.all_sent()},
                                   {"bytes_received", counters.all_received()},
                                   {"seconds_waiting", counters.seconds_waited},
                                   {"rows", rows}});
}

// Over NCCL, between the GPUs of the ranks.
int report_nccl(comm::MessageLink& link, const std::vector<std::int64_t>& sizes, const Options& o) {
  const int gpus = cuda_device_count();
  const std::unique_ptr<Device> device =
      make_device("auto", gpus > 0 ? link.local_rank() % gpus : 0);
  comm::LinkProbe probe = comm::probe_nccl(*device);
  comm::agree_on_link(link, comm::LinkWish::kNccl, probe.facts);
  comm::NcclOptions options;
  // Each lane takes memory and time to connect.
  const bool few = link.size() <= 8;
  options.lanes = few ? comm::all_lanes(link.size()) : comm::pipeline_lanes(link.size());
  options.collectives = true;
  options.timeout_seconds = o.timeout;
  const auto begin = Clock::now();
  const std::int64_t used = device->used_bytes();
  comm::NcclLink over_nccl(*probe.library, comm::make_link_streams(*device), link, options);
  if (link.rank() == 0)
    log_info("NCCL has connected the ranks by {} lane{} in {:.1f} s, with {} of the GPU's memory",
             options.lanes.size(), options.lanes.size() == 1 ? "" : "s", seconds_since(begin),
             format_bytes(static_cast<double>(device->used_bytes() - used)));
  const int status =
      report(link,
             {over_nccl,
              {comm::MemoryKind::kDevice, device.get()},
              device->name(),
              fmt::format("NCCL {} ({})", probe.library->version_text(), probe.library->file()),
              few ? all_pairs(link.size()) : neighbours(link.size())},
             sizes, o);
  over_nccl.close();
  return status;
}

int bench_on_ranks(comm::MessageLink& link, const std::vector<std::int64_t>& sizes,
                   const Options& o) {
  std::string options =
      fmt::format("link {} seconds {} timeout {} bytes", o.link, o.seconds, o.timeout);
  for (const std::int64_t bytes : sizes) options += fmt::format(" {}", bytes);
  comm::check_same(link, {LONGSTRIDE_VERSION, options, o.link});
  if (link.rank() == 0) check_bench_json(o.json);
  if (o.link == "nccl") return report_nccl(link, sizes, o);
  return report(link, {link, {}, "host memory", comm::mpi_library(), all_pairs(link.size())}, sizes,
                o);
}

int bench_link(const Options& o) {
  std::vector<std::int64_t> sizes;
  for (const std::string& text : o.bytes) sizes.push_back(parse_size(text, "--bytes"));
  const comm::Launch launch = comm::read_launch();
  if (!launch.several() && o.link != "nccl")
    throw Error("bench link measures messages between processes, and there is one",
                "mpirun -np 2 --bind-to none longstride bench link");
  if (o.link == "nccl") comm::allow_many_streams();
  comm::LinkOptions options;
  options.timeout_seconds = o.timeout;
  // One process sends to itself by NCCL: it needs no MPI.
  comm::ThreadHub alone(1);
  const std::unique_ptr<comm::MessageLink> link =
      launch.several() ? comm::open_group(launch, options)
                       : std::make_unique<comm::MessageLink>(alone.wire(0), options);
  return run_on_ranks(*link, [&] { return bench_on_ranks(*link, sizes, o); });
}

}  // namespace

void add_bench_link(CLI::App& bench, Action& action) {
  auto o = std::make_shared<Options>();
  CLI::App* command = bench.add_subcommand(
      "link", "messages between the ranks that mpirun or srun has started: right, and how fast");
  command->add_option("--bytes", o->bytes, "sizes of messages, separated by commas")
      ->delimiter(',')
      ->capture_default_str();
  command
      ->add_option("--link", o->link,
                   "mpi: through host memory; nccl: between GPUs, by one process to itself too")
      ->check(CLI::IsMember({"mpi", "nccl"}))
      ->capture_default_str();
  command->add_option("--seconds", o->seconds, "time spent on each pair of ranks and size")
      ->check(finite_number() & CLI::PositiveNumber)
      ->capture_default_str();
  command
      ->add_option("--timeout", o->timeout,
                   "seconds without progress after which a rank is given up")
      ->check(finite_number() & CLI::Range(0.1, 1e6))
      ->capture_default_str();
  command->add_option("--json", o->json, "write the figures to this file instead of stdout")
      ->check(not_empty());
  command->callback([o, &action] { action = [o] { return bench_link(*o); }; });
}

}  // namespace longstride::cli
