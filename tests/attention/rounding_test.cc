#include "base/thread_pool.h"
#include "tests/attention/rounding_check.h"

namespace longstride {
namespace {

// One tile and several tiles of heads that share a KV head; windows; documents; a short last page.
TEST(GradientRounding, IsThatOfTheF32SumOnTheCpu) {
  const auto device = make_cpu_device();
  const int before = thread_count();
  for (const int threads : {1, 3}) {
    set_thread_count(threads);
    for (const auto& [page, heads, window] :
         {std::array<std::int64_t, 3>{16, 4, 0}, {128, 12, 0}, {48, 6, 70}})
      for (const std::int64_t start : {0, 333}) {
        const SequenceLayout layout{
            page * 9 + 5, page * 2, page,
            start == 0 ? std::vector<std::int64_t>{0} : std::vector<std::int64_t>{0, start}};
        RoundingCheck(*device, {.layout = layout, .H = heads, .C = 10, .window = window}).run();
      }
  }
  set_thread_count(before);
}

}  // namespace
}  // namespace longstride
