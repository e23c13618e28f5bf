// Which link the tensors of a run take: NCCL between GPUs, or MPI through host memory.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/nccl_link.h"
#include "device/device.h"

namespace longstride::comm {

// parallel.link
enum class LinkWish : std::uint8_t { kAuto, kNccl, kMpi };
LinkWish parse_link_wish(const std::string& text);  // "auto", "nccl", "mpi"

// What a rank knows of itself.
struct LinkFacts {
  std::string gpu;               // gpu_identity; empty: none
  std::string why_no_nccl;       // empty: it opens
  int nccl_version = 0;          // 22809
  bool sharing_allowed = false;  // NCCL_MULTI_RANK_GPU_ENABLE=1
};
struct LinkChoice {
  bool nccl = false;
  int rank = -1;    // the first for which it cannot be NCCL; -1: it can
  std::string why;  // what is to be said of that rank: "has no GPU"
};
// NCCL wherever it can be, unless MPI is wished for. By rank; hosts for messages.
LinkChoice choose_link(LinkWish wish, std::span<const LinkFacts> ranks,
                       std::span<const std::string> hosts);

// Streams that share a queue of the GPU would wait for each other's messages, and CUDA has 8 queues
// unless its environment says otherwise: asks for 32. Before CUDA is used, and before there are
// other threads.
void allow_many_streams();

// The library where it can be opened, and what this rank knows.
struct LinkProbe {
  std::unique_ptr<NcclLibrary> library;
  LinkFacts facts;
};
LinkProbe probe_nccl(Device& device);

// All ranks call it; they choose the same. If NCCL is wished for and cannot be, rank 0 throws an
// Error that names the rank, its host and why, and all others RankFailed.
LinkChoice agree_on_link(MessageLink& link, LinkWish wish, const LinkFacts& mine);

}  // namespace longstride::comm
