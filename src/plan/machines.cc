#include "plan/machines.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace longstride {
namespace {

constexpr double kTera = 1e12, kGiga = 1e9;
constexpr std::int64_t kGiB = std::int64_t{1} << 30, kGB = 1'000'000'000;

// Rates are fitted to whole steps (docs/plan.md); a step keeps the GPU at its power limit, so they
// are below those of single kernels in docs/cuda.md.
MachineRates h200() {
  MachineRates m;
  m.name = "h200";
  m.measured = true;
  m.source =
      "one H200 (CUDA 13.0, cuBLASLt 13.1, cuDNN 9.14) with PCIe 5 and 125 GiB of host memory: "
      "whole steps and kernels measured, rates fitted to them";
  m.compute = DType::kBF16;
  m.device_bytes = 150'110'011'392;  // 139.8 GiB
  m.host_bytes = 125 * kGiB;
  m.disk_bytes = 64 * kGiB;
  m.peak_flops = 989 * kTera;
  m.products = {.peak = 718 * kTera, .half_tiles = 40, .half_inner = 60};
  m.loss_head = 700 * kTera;
  m.attention = {.earlier_forward = 612 * kTera,
                 .earlier_backward = 535 * kTera,
                 .half_keys_forward = 800,
                 .half_keys_backward = 600,
                 .own_forward = 680 * kTera,
                 .own_backward = 600 * kTera,
                 .half_own = 2200,
                 .window_forward = 180 * kTera,
                 .window_backward = 150 * kTera,
                 .selected_forward = 600 * kTera,
                 .selected_backward = 480 * kTera,
                 .exact_backward = 1.15,
                 .exact_selected = 1.1,
                 .small_heads_forward = 0.63,
                 .small_heads_backward = 0.8,
                 .half_tiles = 20};
  m.page_scores = 550 * kTera;
  m.memory = 4 * kTera;
  m.gradient_sums = 10 * kTera;
  m.update = 4.2 * kTera;
  m.task_overhead = 60e-6;
  m.copies = {.to_host = 50 * kGiga,
              .from_host = 50 * kGiga,
              .both = 99 * kGiga,
              .beside = 0.045,
              .disk_read = 3.3 * kGiga,
              .disk_write = 1.8 * kGiga};
  return m;
}

// What a data sheet says.
struct DataSheet {
  const char* name;
  const char* source;
  double tflops = 0;  // bf16 with fp32 sums, dense, by matrix units
  double memory = 0;  // TB/s
  std::int64_t gigabytes = 0;
  double bus = 1;  // of PCIe 5 x16
};

constexpr DataSheet kDataSheets[] = {
    {"h100", "NVIDIA H100 data sheet, SXM", 989, 3.35, 80, 1},
    {"a100", "NVIDIA A100 data sheet, 80 GB SXM", 312, 2.039, 80, 0.5},
    {"l40s", "NVIDIA L40S data sheet", 362, 0.864, 48, 0.5},
    {"rtx4090", "NVIDIA Ada GPU architecture, RTX 4090", 165.2, 1.008, 24, 0.5},
    {"b200", "NVIDIA DGX B200 data sheet, an eighth of it", 2250, 8, 180, 1},
};

// The shares of its data sheet that the H200 reaches, on another GPU: arithmetic scales with the
// peak, what reads and writes memory with its bandwidth, copies with the bus.
MachineRates estimate(const DataSheet& sheet) {
  constexpr double kH200Memory = 4.8;  // TB/s
  MachineRates m = h200();
  m.name = sheet.name;
  m.measured = false;
  m.source = fmt::format(
      "estimate: {} ({} TFLOP/s bf16, {} TB/s, {} GB, PCIe {} x16), used as well as the H200's; "
      "host memory and disk as there",
      sheet.source, sheet.tflops, sheet.memory, sheet.gigabytes, sheet.bus < 1 ? 4 : 5);
  m.device_bytes = sheet.gigabytes * kGB;
  const double arithmetic = sheet.tflops * kTera / m.peak_flops,
               memory = sheet.memory / kH200Memory;
  m.peak_flops = sheet.tflops * kTera;
  AttentionRates& a = m.attention;
  for (double* rate : {&m.products.peak, &m.loss_head, &a.earlier_forward, &a.earlier_backward,
                       &a.own_forward, &a.own_backward, &a.window_forward, &a.window_backward,
                       &a.selected_forward, &a.selected_backward, &m.page_scores})
    *rate *= arithmetic;
  for (double* rate : {&m.memory, &m.gradient_sums, &m.update}) *rate *= memory;
  for (double* rate : {&m.copies.to_host, &m.copies.from_host, &m.copies.both}) *rate *= sheet.bus;
  return m;
}

const std::vector<MachineRates>& machines() {
  static const std::vector<MachineRates> all = [] {
    std::vector<MachineRates> list = {h200()};
    for (const DataSheet& sheet : kDataSheets) list.push_back(estimate(sheet));
    return list;
  }();
  return all;
}

}  // namespace

std::vector<std::string> machine_names() {
  std::vector<std::string> names;
  for (const MachineRates& m : machines()) names.push_back(m.name);
  return names;
}

const MachineRates* machine_with(std::string_view device_name) {
  std::string name(device_name);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  std::replace(name.begin(), name.end(), '-', ' ');
  const auto says = [&](const std::string& words) {
    return (" " + name + " ").find(" " + words + " ") != std::string::npos;
  };
  // Such cards are slower, and a part of a GPU (MIG) has a part of its rates.
  if (says("pcie") || says("nvl") || says("mig") || says("laptop")) return nullptr;
  if (says("h200")) return &find_machine("h200");
  if (says("h100") && says("80gb")) return &find_machine("h100");
  if (says("a100") && says("80gb")) return &find_machine("a100");
  if (says("l40s")) return &find_machine("l40s");
  if (name.ends_with("rtx 4090")) return &find_machine("rtx4090");
  if (says("b200")) return &find_machine("b200");
  return nullptr;
}

MachineRates cpu_machine(int threads) {
  const double n = threads;
  MachineRates m;
  m.name = "cpu";
  m.source = fmt::format("estimate: a CPU with {} threads of 40 GFLOP/s", threads);
  m.compute = DType::kF32;
  m.device_bytes = 16 * kGiB;
  m.peak_flops = n * 60 * kGiga;
  m.products = {.peak = n * 40 * kGiga};
  m.loss_head = n * 40 * kGiga;
  m.attention = {.earlier_forward = n * 20 * kGiga,
                 .earlier_backward = n * 20 * kGiga,
                 .own_forward = n * 20 * kGiga,
                 .own_backward = n * 20 * kGiga,
                 .window_forward = n * 15 * kGiga,
                 .window_backward = n * 15 * kGiga,
                 .selected_forward = n * 20 * kGiga,
                 .selected_backward = n * 20 * kGiga};
  m.page_scores = n * 20 * kGiga;
  m.memory = n * 5 * kGiga;
  m.gradient_sums = n * 5 * kGiga;
  m.update = n * 5 * kGiga;
  m.task_overhead = 20e-6;
  m.copies = {.to_host = 5 * kGiga,
              .from_host = 5 * kGiga,
              .both = 8 * kGiga,
              .disk_read = 1 * kGiga,
              .disk_write = 0.5 * kGiga};
  return m;
}

const MachineRates& find_machine(std::string_view name) {
  for (const MachineRates& m : machines())
    if (m.name == name) return m;
  const std::vector<std::string> names = machine_names();
  const std::string near = nearest(name, names),
                    known = fmt::format("the machines are {}", fmt::join(names, ", "));
  throw Error(fmt::format("there is no machine '{}'", name),
              near.empty() ? known : fmt::format("did you mean {}? {}", near, known));
}

}  // namespace longstride
