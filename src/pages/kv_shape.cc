#include "pages/kv_shape.h"

#include <algorithm>

namespace longstride {

std::vector<LayerPool> pools_of(const KvShape& shape, bool gradients) {
  std::vector<LayerPool> pools;
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    const DType type = shape.types(layer).of(gradients);
    auto pool = std::ranges::find(pools, type, &LayerPool::type);
    if (pool == pools.end())
      pool = pools.insert(pools.end(), {type, shape.bytes_in(type, !gradients), {}});
    pool->layers.push_back(layer);
  }
  return pools;
}

std::vector<LayerPlace> places_of(const std::vector<LayerPool>& pools, std::int64_t layers) {
  std::vector<LayerPlace> places(static_cast<std::size_t>(layers));
  for (std::size_t p = 0; p < pools.size(); ++p)
    for (std::size_t i = 0; i < pools[p].layers.size(); ++i)
      places.at(static_cast<std::size_t>(pools[p].layers[i])) = {static_cast<std::int32_t>(p),
                                                                 static_cast<std::int32_t>(i)};
  return places;
}

}  // namespace longstride
