// The types of the pages of a model's layers, what they take, and how many of them have a place.
#pragma once

#include <cstdint>
#include <vector>

#include "offload/offload_capacity.h"
#include "tensor/page_codes.h"

namespace longstride {

struct KvShape {
  std::int64_t layers = 0, kv_heads = 0, head_size = 0, page_tokens = 0;
  DType dtype = DType::kF32;           // of keys and values
  DType gradient_dtype = DType::kF32;  // of their gradients
  DType wide = dtype;                  // of keys and values as attention reads them
  // One per layer, in place of dtype and gradient_dtype; empty: those are of all layers.
  std::vector<PageTypes> by_layer = {};
  // Of a sparse layer whose gradient pages are coded, the gradients of so many pages at most are in
  // F32 (pages/hot_pages.h).
  std::int64_t hot_pages = 0;

  PageTypes types(std::int64_t layer) const {
    return by_layer.empty() ? PageTypes{dtype, gradient_dtype}
                            : by_layer.at(static_cast<std::size_t>(layer));
  }
  std::int64_t page_bytes(std::int64_t layer = 0) const { return bytes_in(types(layer).kv, true); }
  std::int64_t gradient_page_bytes(std::int64_t layer = 0) const {
    return bytes_in(types(layer).gradients);
  }
  // Of the copies that attention works on, where pages are coded.
  std::int64_t wide_page_bytes() const { return bytes_in(wide); }
  std::int64_t gradient_sum_bytes() const { return bytes_in(DType::kF32); }
  std::int64_t bytes_in(DType type, bool centred = false) const {
    return page_bytes_of(type, page_tokens, kv_heads, head_size, centred);
  }
};

// Layers whose pages of one kind have the same type share a pool.
struct LayerPool {
  DType type = DType::kF32;
  std::int64_t page_bytes = 0;
  std::vector<std::int64_t> layers;  // ascending
};
// The pools of keys and values, or of gradients, by their lowest layers.
std::vector<LayerPool> pools_of(const KvShape& shape, bool gradients);

// Where the pages of a layer are.
struct LayerPlace {
  std::int32_t pool = 0, index = 0;  // of pools_of; of the layer in it
};
std::vector<LayerPlace> places_of(const std::vector<LayerPool>& pools, std::int64_t layers);

// Wide copies of coded pages on the device (attention/coded_pages.h); none of a kind that no layer
// has in codes.
struct WideCapacity {
  std::int64_t kv_pages = 0, gradient_pages = 0;
  std::int64_t hot_pages = 0;  // of all layers; F32, as the sums of gradients are
  bool any() const { return kv_pages + gradient_pages > 0; }
  std::int64_t bytes(const KvShape& shape) const {
    return kv_pages * shape.wide_page_bytes() +
           (gradient_pages + hot_pages) * shape.gradient_sum_bytes();
  }
  bool operator==(const WideCapacity&) const = default;
};

// A pool of pages, as pools_of has it, and how many it holds.
struct PoolCapacity {
  std::vector<std::int64_t> layers = {};
  std::int64_t page_bytes = 0;
  std::int64_t most = 0;   // pages that exist at once
  std::int64_t pages = 0;  // of them on the device
  OffloadCapacity offload = {};
  bool holds_all() const { return pages >= most; }
  bool operator==(const PoolCapacity&) const = default;
};

// What a pool takes on each tier, if its pages move in groups of so many.
struct PoolBytes {
  std::int64_t device = 0, host = 0, disk = 0;
  std::int64_t disk_buffers = 0;  // in host memory
};
inline PoolBytes bytes_of(const PoolCapacity& pool, std::int64_t pages_per_group) {
  const std::int64_t group = pages_per_group * pool.page_bytes;
  const OffloadCapacity& o = pool.offload;
  return {pool.pages * pool.page_bytes, o.host_records * group, o.disk_records * group,
          o.disk_records > 0 ? o.disk_buffers * group : 0};
}

// For sequences of up to `logical_pages` pages.
struct KvCapacity {
  std::int64_t logical_pages = 0;
  std::int64_t pages_per_group = 1;  // pages that move together; any number
  std::vector<PoolCapacity> kv, gradients;
  bool operator==(const KvCapacity&) const = default;
};

}  // namespace longstride
