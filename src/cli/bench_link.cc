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
#include "comm/mpi_wire.h"

namespace longstride::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::vector<std::string> bytes = {"0", "1", "4097", "1M", "64M"};
  double seconds = 0.2, timeout = 60;
  std::string json;
};

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Seconds that a message takes from rank a to rank b, known to all ranks: a sends, b answers, as
// often as fits in `seconds`.
double time_pair(comm::Link& link, int a, int b, std::vector<std::byte>& buffer, double seconds) {
  const auto there_and_back = [&](std::int64_t times) {
    for (std::int64_t i = 0; i < times; ++i)
      if (link.rank() == a) {
        const comm::Ticket back = link.receive(b, buffer);
        link.wait(link.send(b, buffer));
        link.wait(back);
      } else {
        link.wait(link.receive(a, buffer));
        link.wait(link.send(a, buffer));
      }
  };
  double taken = 0;
  if (link.rank() == a || link.rank() == b) {
    there_and_back(1);
    const auto first = Clock::now();
    there_and_back(1);
    std::int64_t times = std::clamp<std::int64_t>(
        std::llround(seconds / std::max(seconds_since(first), 1e-7)), 1, 1'000'000);
    if (link.rank() == a)
      link.wait(link.send(b, comm::send_buffer(times)));
    else
      link.wait(link.receive(a, comm::receive_buffer(times)));
    const auto begin = Clock::now();
    there_and_back(times);
    taken = seconds_since(begin) / (2 * static_cast<double>(times));
  }
  link.broadcast(a, comm::receive_buffer(taken));
  return taken;
}

OrderedJson measure(comm::MessageLink& link, const std::vector<std::int64_t>& sizes,
                    const Options& o) {
  const bool tells = link.rank() == 0;
  for (const std::int64_t bytes : sizes) {
    comm::check_link(link, bytes);
    if (tells)
      log_info("{:>11} bytes: messages, all_to_all, all_gather, broadcast and barrier are right",
               bytes);
  }
  OrderedJson rows = OrderedJson::array();
  if (tells) log_info("{:>5} {:>4} {:>11} {:>12} {:>9}", "from", "to", "bytes", "us", "GB/s");
  for (int a = 0; a < link.size(); ++a)
    for (int b = a + 1; b < link.size(); ++b)
      for (const std::int64_t bytes : sizes) {
        std::vector<std::byte> buffer(static_cast<std::size_t>(bytes));
        const double taken = time_pair(link, a, b, buffer, o.seconds);
        const double rate = static_cast<double>(bytes) / taken / 1e9;
        if (tells)
          log_info("{:>5} {:>4} {:>11} {:>12.2f} {:>9.3f}", a, b, bytes, taken * 1e6, rate);
        rows.push_back({{"operation", "message"},
                        {"from", a},
                        {"to", b},
                        {"bytes", bytes},
                        {"seconds", taken},
                        {"gb_per_s", rate}});
      }
  return rows;
}

int bench_on_ranks(comm::MessageLink& link, const std::vector<std::int64_t>& sizes,
                   const Options& o) {
  std::string options = fmt::format("seconds {} timeout {} bytes", o.seconds, o.timeout);
  for (const std::int64_t bytes : sizes) options += fmt::format(" {}", bytes);
  comm::check_same(link, {LONGSTRIDE_VERSION, options, "host memory"});
  if (link.rank() == 0) check_bench_json(o.json);
  if (link.rank() == 0) {
    log_info("{} ranks, {}", link.size(), comm::mpi_library());
    for (int rank = 0; rank < link.size(); ++rank) log_info("rank {} on {}", rank, link.host(rank));
  }
  OrderedJson hosts = OrderedJson::array();
  for (int rank = 0; rank < link.size(); ++rank) hosts.push_back(link.host(rank));
  const OrderedJson rows = measure(link, sizes, o);
  if (link.rank() != 0) return 0;
  const comm::ByteCounters counters = link.counters();
  return write_bench_json(o.json, {{"device", "host memory"},
                                   {"threads", thread_count()},
                                   {"library", comm::mpi_library()},
                                   {"ranks", link.size()},
                                   {"hosts", hosts},
                                   {"bytes_sent", counters.all_sent()},
                                   {"bytes_received", counters.all_received()},
                                   {"seconds_waiting", counters.seconds_waited},
                                   {"rows", rows}});
}

int bench_link(const Options& o) {
  std::vector<std::int64_t> sizes;
  for (const std::string& text : o.bytes) sizes.push_back(parse_size(text, "--bytes"));
  const comm::Launch launch = comm::read_launch();
  if (!launch.several())
    throw Error("bench link measures messages between processes, and there is one",
                "mpirun -np 2 --bind-to none longstride bench link");
  comm::LinkOptions options;
  options.timeout_seconds = o.timeout;
  const std::unique_ptr<comm::MessageLink> link = comm::open_group(launch, options);
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
