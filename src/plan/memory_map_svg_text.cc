#include "plan/memory_map_svg_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/sizes.h"

namespace longstride::svg {
namespace {

const MapTenant* tenant_of(const MemoryMap& map, MapPart part) {
  const auto found = std::find_if(map.tenants.begin(), map.tenants.end(),
                                  [&](const MapTenant& tenant) { return tenant.part == part; });
  return found == map.tenants.end() ? nullptr : &*found;
}

bool has_pages(const std::vector<MapLane>& lanes) {
  return std::any_of(lanes.begin(), lanes.end(), [](const MapLane& lane) {
    return lane.part == MapPart::kKvPages || lane.part == MapPart::kKvGradients;
  });
}

std::int64_t activations(const std::vector<MapLane>& lanes) {
  std::int64_t bytes = 0;
  for (const MapLane& lane : lanes)
    if (lane.part >= MapPart::kInput) bytes += lane.bytes;
  return bytes;
}

std::string swapped_text(const MemoryMap& map) {
  const std::int64_t in_host = activations(map.host), on_disk = activations(map.disk);
  return fmt::format(
      "{} of activations leave the device as soon as they are made, wait {}, and come back for "
      "their backward pass beside the arithmetic. On their way they take some of the workspace, "
      "which is shown below it; hatched is what came back.",
      bytes_text(in_host + on_disk),
      in_host > 0 && on_disk > 0 ? "in host memory and on disk"
      : on_disk > 0              ? "on disk"
                                 : "in host memory");
}

}  // namespace

std::string bytes_text(std::int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

std::int64_t reserved(const std::vector<MapLane>& lanes) {
  std::int64_t sum = 0;
  for (const MapLane& lane : lanes) sum += lane.bytes;
  return sum;
}

std::string lane_text(const MapLane& lane, std::int64_t most) {
  switch (lane.part) {
    case MapPart::kLeaving:
      return fmt::format("{}: up to {} of the workspace, while they are copied off the device",
                         lane.name, bytes_text(most));
    case MapPart::kLanding:
      return fmt::format(
          "{}: up to {} of the workspace, until their layer's backward pass; those of the next "
          "layer come while one computes",
          lane.name, bytes_text(most));
    default:
      return fmt::format("{}: up to {}, {} reserved", lane.name, bytes_text(most),
                         bytes_text(lane.bytes));
  }
}

std::string subtitle(const MemoryMap& map) {
  const std::string used = bytes_text(map.used()), all = bytes_text(map.available);
  std::string text = fmt::format(
      "{} tokens in {} chunk{} of {}, {} layers. {}", format_count(map.tokens), map.chunks,
      map.chunks == 1 ? "" : "s", format_count(map.chunk_tokens), map.layers,
      map.available <= 0            ? used + " on the device"
      : map.used() <= map.available ? used + " of " + all + " on the device"
                                    : used + " on a device of " + all);
  if (!map.host.empty()) text += fmt::format(", {} in host memory", bytes_text(reserved(map.host)));
  if (!map.disk.empty()) text += fmt::format(", {} on disk", bytes_text(reserved(map.disk)));
  return text + ".";
}

std::string caption(const MemoryMap& map) {
  std::string text =
      "Device memory goes from bottom to top, one training step from left to right. Pale is "
      "reserved, full colour is in use.";
  const bool in_host = has_pages(map.host), on_disk = has_pages(map.disk);
  if (tenant_of(map, MapPart::kKvPages) != nullptr)
    text += fmt::format(
        " Pages of keys and values grow with every chunk of the forward pass and are freed in the "
        "backward pass{}.",
        in_host && on_disk ? "; those that the device cannot hold are in host memory and on disk"
        : in_host          ? "; those that the device cannot hold are in host memory"
        : on_disk          ? "; those that the device cannot hold are on disk"
                           : "");
  if (const MapTenant* tenant = tenant_of(map, MapPart::kRetained))
    text += fmt::format(
        " {} of retained activations wait for their backward pass, so that they need not be "
        "recomputed.",
        bytes_text(tenant->bytes));
  if (!map.moving.empty()) text += " " + swapped_text(map);
  if (tenant_of(map, MapPart::kWorkspace) != nullptr)
    text += " Every chunk uses the same workspace again.";
  return text;
}

std::string close_up_text(const MapCloseUp& close_up) {
  return close_up.live_bytes == close_up.bytes
             ? fmt::format("{}, all in use at its peak", bytes_text(close_up.bytes))
             : fmt::format("{}, of which {} are in use at its peak", bytes_text(close_up.bytes),
                           bytes_text(close_up.live_bytes));
}

}  // namespace longstride::svg
