#include "comm/launch.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/checksum.h"
#include "base/error.h"
#include "comm/mpi_wire.h"

namespace longstride::comm {
namespace {

using Variable = std::function<const char*(const char*)>;

std::optional<int> number(const Variable& variable, const char* name) {
  const char* const text = variable(name);
  if (text == nullptr) return std::nullopt;
  int value = 0;
  const char* const end = text + std::strlen(text);
  const auto result = std::from_chars(text, end, value);
  if (result.ec != std::errc() || result.ptr != end || value < 0) return std::nullopt;
  return value;
}

std::uint64_t digest(std::string_view text) {
  Checksum checksum;
  checksum.add(std::as_bytes(std::span(text)));
  return checksum.value();
}

// What ranks exchange.
struct Card {
  std::array<char, 32> version{};
  std::uint64_t whole_version = 0, configuration = 0, devices = 0;
};

}  // namespace

Launch read_launch(const Variable& variable) {
  // Open MPI's launcher; then any that speaks PMI, of which only Slurm's names the number of tasks.
  if (const auto size = number(variable, "OMPI_COMM_WORLD_SIZE"); size && *size > 1)
    return {"mpirun", number(variable, "OMPI_COMM_WORLD_RANK").value_or(0), *size};
  auto rank = number(variable, "PMIX_RANK");
  if (!rank) rank = number(variable, "PMI_RANK");
  if (const auto size = number(variable, "SLURM_NTASKS"); rank && size && *size > 1)
    return {"srun", *rank, *size};
  return {};
}

Launch read_launch() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing changes the environment meanwhile
  return read_launch([](const char* name) -> const char* { return std::getenv(name); });
}

std::unique_ptr<MessageLink> open_group(const Launch& launch, const LinkOptions& options) {
  return std::make_unique<MessageLink>(open_mpi(launch.size), options);
}

void check_same(MessageLink& link, const SameEverywhere& mine) {
  Card card{{}, digest(mine.version), digest(mine.configuration), digest(mine.devices)};
  std::copy_n(mine.version.begin(), std::min(mine.version.size(), card.version.size() - 1),
              card.version.begin());
  std::vector<Card> cards(static_cast<std::size_t>(link.size()));
  std::vector<ReceiveBuffer> from;
  for (Card& one : cards) from.push_back(receive_buffer(one));
  link.all_gather(send_buffer(card), from);
  const Card& first = cards.front();
  for (int rank = 1; rank < link.size(); ++rank) {
    const Card& other = cards[static_cast<std::size_t>(rank)];
    std::string what, hint;
    if (other.whole_version != first.whole_version) {
      what = fmt::format("is longstride {}, rank 0 on {} is {}", other.version.data(), link.host(0),
                         first.version.data());
      hint = "install the same version on all hosts";
    } else if (other.configuration != first.configuration) {
      what = fmt::format("has another configuration than rank 0 on {}", link.host(0));
      hint = "start all ranks with the same configuration and the same options";
    } else if (other.devices != first.devices) {
      what = fmt::format("has another device than rank 0 on {}", link.host(0));
      hint = "use hosts with the same devices";
    } else {
      continue;
    }
    const std::string message = fmt::format("rank {} on {} {}", rank, link.host(rank), what);
    if (link.rank() == 0) throw Error(message, hint);
    throw RankFailed(0, 2, message);
  }
}

}  // namespace longstride::comm
