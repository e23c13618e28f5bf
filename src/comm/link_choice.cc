#include "comm/link_choice.h"

#include <cstdlib>
#include <map>
#include <sstream>

#include "base/error.h"
#include "comm/control.h"
#include "comm/link_streams.h"

namespace longstride::comm {
namespace {

constexpr int kFirstThatShares = 23000;  // knows NCCL_MULTI_RANK_GPU_ENABLE

// One fact per line; a message of the loader has none of its own.
std::string write_facts(const LinkFacts& facts) {
  std::string why = facts.why_no_nccl;
  for (char& c : why)
    if (c == '\n') c = ' ';
  return fmt::format("{}\n{}\n{}\n{}\n", facts.gpu, why, facts.nccl_version,
                     facts.sharing_allowed ? 1 : 0);
}

LinkFacts read_facts(const std::string& text) {
  std::istringstream lines(text);
  LinkFacts facts;
  std::string version, sharing;
  std::getline(lines, facts.gpu);
  std::getline(lines, facts.why_no_nccl);
  std::getline(lines, version);
  std::getline(lines, sharing);
  facts.nccl_version = std::stoi(version);
  facts.sharing_allowed = sharing == "1";
  return facts;
}

}  // namespace

LinkWish parse_link_wish(const std::string& text) {
  LS_CHECK(text == "auto" || text == "nccl" || text == "mpi", "link {}", text);
  return text == "auto" ? LinkWish::kAuto : text == "nccl" ? LinkWish::kNccl : LinkWish::kMpi;
}

LinkChoice choose_link(LinkWish wish, std::span<const LinkFacts> ranks,
                       std::span<const std::string> hosts) {
  if (wish == LinkWish::kMpi) return {};
  std::map<std::string, int> first_of;  // rank by GPU
  for (int r = 0; r < std::ssize(ranks); ++r) {
    const LinkFacts& one = ranks[static_cast<std::size_t>(r)];
    if (one.gpu.empty()) return {false, r, "has no GPU"};
    if (!one.why_no_nccl.empty()) return {false, r, "cannot use NCCL: " + one.why_no_nccl};
    if (one.nccl_version != ranks[0].nccl_version)
      return {false, r,
              fmt::format("has NCCL {}, rank 0 on {} has {}", nccl_version_text(one.nccl_version),
                          hosts[0], nccl_version_text(ranks[0].nccl_version))};
    const auto [found, is_new] = first_of.emplace(one.gpu, r);
    if (is_new || (one.nccl_version >= kFirstThatShares && one.sharing_allowed)) continue;
    return {false, r,
            fmt::format("shares its GPU with rank {}, which NCCL {} {}", found->second,
                        nccl_version_text(one.nccl_version),
                        one.nccl_version >= kFirstThatShares
                            ? "allows with NCCL_MULTI_RANK_GPU_ENABLE=1 alone"
                            : "forbids")};
  }
  return {true, -1, ""};
}

void allow_many_streams() {
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);  // NOLINT(concurrency-mt-unsafe)
}

LinkProbe probe_nccl(Device& device) {
  LinkProbe probe;
  probe.facts.gpu = gpu_identity(device);
  if (probe.facts.gpu.empty()) return probe;  // no need to look for it
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing changes the environment meanwhile
  const char* const sharing = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  probe.facts.sharing_allowed = sharing != nullptr && std::string(sharing) == "1";
  try {
    probe.library = std::make_unique<NcclLibrary>();
    probe.facts.nccl_version = probe.library->version();
  } catch (const Error& e) {
    probe.facts.why_no_nccl = e.what();
  }
  return probe;
}

LinkChoice agree_on_link(MessageLink& link, LinkWish wish, const LinkFacts& mine) {
  if (wish == LinkWish::kMpi) return {};
  std::vector<LinkFacts> all;
  std::vector<std::string> hosts;
  for (const std::string& text : gather_texts(link, write_facts(mine))) {
    hosts.push_back(link.host(static_cast<int>(all.size())));
    all.push_back(read_facts(text));
  }
  LinkChoice choice = choose_link(wish, all, hosts);
  if (choice.nccl || wish == LinkWish::kAuto) return choice;
  const std::string message = fmt::format("NCCL is asked for, and rank {} on {} {}", choice.rank,
                                          hosts[static_cast<std::size_t>(choice.rank)], choice.why);
  if (link.rank() != 0) throw RankFailed(0, 2, message);
  throw Error(message,
              "give every rank a GPU of its own and install NCCL on all hosts, or use "
              "parallel.link = \"mpi\", which goes through host memory");
}

}  // namespace longstride::comm
