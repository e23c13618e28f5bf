#include "cli/page_pools.h"

#include <fmt/format.h>

#include "base/sizes.h"
#include "pages/kv_shape.h"
#include "tensor/dtype_words.h"

namespace longstride::cli {
namespace {

struct NamedPool {
  const char* name;
  std::string dtype;
  const PoolCapacity& pool;
  PoolBytes bytes;
};

std::vector<NamedPool> pools_of_plan(const StepPlan& plan, const NumericsRecord& numerics) {
  std::vector<NamedPool> pools;
  const KvCapacity& pages = plan.pages;
  for (const bool gradients : {false, true})
    for (const PoolCapacity& pool : gradients ? pages.gradients : pages.kv)
      pools.push_back(
          {gradients ? "gradients" : "keys and values",
           std::string(word_of_pages(numerics.pages_of(pool.layers.front()).of(gradients))), pool,
           bytes_of(pool, pages.pages_per_group)});
  return pools;
}

}  // namespace

OrderedJson page_pools_to_json(const StepPlan& plan, const NumericsRecord& numerics) {
  OrderedJson json = OrderedJson::array();
  for (const NamedPool& p : pools_of_plan(plan, numerics))
    json.push_back({{"of", p.name},
                    {"dtype", p.dtype},
                    {"layers", p.pool.layers.size()},
                    {"page_bytes", p.pool.page_bytes},
                    {"device", p.bytes.device},
                    {"host", p.bytes.host},
                    {"disk", p.bytes.disk},
                    {"disk_buffers", p.bytes.disk_buffers}});
  return json;
}

std::vector<std::string> describe_page_pools(const StepPlan& plan, const NumericsRecord& numerics) {
  const auto bytes = [](std::int64_t b) { return format_bytes(static_cast<double>(b)); };
  std::vector<std::string> lines;
  for (const NamedPool& p : pools_of_plan(plan, numerics))
    lines.push_back(
        fmt::format("pages of {} in {}, {} layer{}: {} on the device, {} in host "
                    "memory, {} on disk",
                    p.name, p.dtype, p.pool.layers.size(), p.pool.layers.size() == 1 ? "" : "s",
                    bytes(p.bytes.device), bytes(p.bytes.host), bytes(p.bytes.disk)));
  return lines;
}

}  // namespace longstride::cli
