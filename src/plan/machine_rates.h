// MachineRates: what a machine holds and how fast it is, in the figures that the cost model
// (plan/step_cost.h) needs. Known without the machine; also as JSON. Plain data.
//
// A rate is what a step sees, not the best that a single kernel reaches on a cool device. Rates of
// arithmetic are in FLOP/s, of bytes in bytes/s. A higher rate never makes a prediction slower.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/json.h"
#include "tensor/dtype.h"

namespace longstride {

// Matrix products. Small ones are slower: a product of half_tiles tiles of 128 x 128 results, or
// with sums of half_inner terms, reaches half of the peak.
struct ProductRates {
  double peak = 0;
  double half_tiles = 0, half_inner = 0;

  // Of a product of a [rows, inner] and an [inner, outer] matrix.
  double rate(double rows, double inner, double outer) const;
  bool operator==(const ProductRates&) const = default;
};

// Attention. FLOPs are those of the pairs of a query and a key that it sees: 4 x query heads x head
// size forward, 2.5 times as many backward.
struct AttentionRates {
  // Over keys before the chunk, without a mask; half of it with so many keys in a segment.
  double earlier_forward = 0, earlier_backward = 0;
  double half_keys_forward = 0, half_keys_backward = 0;
  // Over the chunk's own keys, causal; half of it if the chunk has so many tokens.
  double own_forward = 0, own_backward = 0, half_own = 0;
  // By our own kernels: windows, and what the libraries do not take.
  double window_forward = 0, window_backward = 0;
  // Over selected pages, without the copies of them, which count as memory traffic.
  double selected_forward = 0, selected_backward = 0;
  // How many times as long the library's backward passes take if they have to repeat every bit.
  double exact_backward = 1, exact_selected = 1;
  // Rates at head size 64, relative to 128 and more.
  double small_heads_forward = 1, small_heads_backward = 1;
  // Half of every rate with so many tiles of 128 queries of one head.
  double half_tiles = 0;
  bool operator==(const AttentionRates&) const = default;
};

// Between the device and what is slower. `beside` is how much longer computing takes for each
// second of copying in one direction beside it.
struct CopyRates {
  double to_host = 0, from_host = 0;
  double both = 0;  // the sum of both directions, if both are busy
  double beside = 0;
  double disk_read = 0, disk_write = 0;
  bool operator==(const CopyRates&) const = default;
};

struct MachineRates {
  std::string name;
  bool measured = false;         // else the figures are estimates
  std::string source;            // of the figures, for people
  DType compute = DType::kBF16;  // type of activations that the rates are for
  std::int64_t device_bytes = 0, host_bytes = 0, disk_bytes = 0;
  double peak_flops = 0;  // of products, by the data sheet: 100% utilisation

  ProductRates products;
  double loss_head = 0;  // peak of the loss head's products, in place of products.peak
  AttentionRates attention;
  double page_scores = 0;    // 4 x head size FLOPs for every query of a head and vector of a page
  double memory = 0;         // norms, RoPE, SwiGLU, embedding, copies of pages
  double gradient_sums = 0;  // weight gradients: bytes read and written by the products' epilogues
  double update = 0;         // bytes that the optimizer reads and writes on the device
  double task_overhead = 0;  // seconds of every task in which nothing is computed
  CopyRates copies;
  double host_sleep = 0;  // seconds that the host sleeps longer than it asks for; 0: not measured

  bool operator==(const MachineRates&) const = default;
};

OrderedJson to_json(const MachineRates& rates);
// `where` (a path) begins every error's message. Throws one Error that names the field if one is
// missing, unknown, of another type or out of range.
MachineRates machine_rates_from_json(const Json& json, const std::string& where);
// The same for a file.
MachineRates read_machine_rates(const std::filesystem::path& file);

}  // namespace longstride
