// A call's uploads stay in place until its kernels have run, however large its lists are and
// wherever the ring is.
#include "device/cuda/transfer_ring.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "device/cuda/check.h"

namespace longstride::cuda {
namespace {

constexpr std::int64_t kKiB = 1 << 10, kMiB = 1 << 20;

std::vector<std::byte> pattern(std::int64_t bytes, unsigned seed) {
  std::vector<std::byte> data(static_cast<std::size_t>(bytes));
  for (std::size_t i = 0; i < data.size(); ++i) {
    seed = seed * 1664525u + 1013904223u;
    data[i] = static_cast<std::byte>(seed >> 24);
  }
  return data;
}

std::vector<std::byte> read(cudaStream_t stream, const std::byte* device, std::size_t bytes) {
  std::vector<std::byte> host(bytes);
  LS_CUDA(cudaMemcpyAsync(host.data(), device, bytes, cudaMemcpyDeviceToHost, stream));
  LS_CUDA(cudaStreamSynchronize(stream));
  return host;
}

TEST(TransferRing, WhatACallUploadsLiesApart) {
  cudaStream_t stream = nullptr;
  LS_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  {
    TransferRing ring(stream);
    // The lists of attention over scattered pages: offsets, pages, first visible keys, slots.
    for (const std::int64_t large : {2 * kMiB, 8 * kMiB, 27 * kMiB, 32 * kMiB})
      for (unsigned call = 0; call < 5; ++call) {
        std::vector<std::vector<std::byte>> lists;
        std::vector<const std::byte*> places;
        for (const std::int64_t bytes : {512 * kKiB, large, 700 * kKiB, kMiB, large, 3 * kKiB}) {
          lists.push_back(pattern(bytes, call * 10 + static_cast<unsigned>(lists.size())));
          places.push_back(ring.upload(lists.back().data(), bytes));
        }
        for (std::size_t i = 0; i < lists.size(); ++i)
          EXPECT_TRUE(read(stream, places[i], lists[i].size()) == lists[i])
              << "list " << i << " of call " << call << ", large ones of " << large;
      }
  }
  cudaStreamDestroy(stream);
}

TEST(TransferRing, CopiesOfAnySizeArrive) {
  cudaStream_t stream = nullptr;
  LS_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  {
    TransferRing ring(stream);
    void* device = nullptr;
    LS_CUDA(cudaMalloc(&device, static_cast<std::size_t>(100 * kMiB)));
    for (const std::int64_t bytes : {std::int64_t{1}, 8 * kMiB, 8 * kMiB + 1, 99 * kMiB + 7}) {
      std::vector<std::byte> data = pattern(bytes, 3), expected = data;
      ring.copy_to(device, data.data(), bytes);
      std::memset(data.data(), 0, data.size());  // allowed at once
      EXPECT_TRUE(read(stream, static_cast<std::byte*>(device), expected.size()) == expected)
          << bytes << " bytes";
    }
    LS_CUDA(cudaFree(device));
  }
  cudaStreamDestroy(stream);
}

}  // namespace
}  // namespace longstride::cuda
