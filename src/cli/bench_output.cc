#include "base/files.h"
#include "base/output_file.h"
#include "cli/bench.h"
#include "cli/output.h"

namespace longstride::cli {
namespace {

bool is_bench_json(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return json.is_object() && json.contains("device") && json.contains("threads") &&
         (json.contains("tokens_per_s") || json.contains("rows"));
}

}  // namespace

void check_bench_json(const std::string& file) {
  constexpr std::size_t kLargest = std::size_t{16} << 20;
  if (!file.empty())
    check_output_file(file, {"--json", "a result of longstride bench", is_bench_json, kLargest});
}

int write_bench_json(const std::string& file, const OrderedJson& json) {
  if (file.empty()) return print_output(dump_json(json) + "\n");
  write_file_atomic(file, dump_json(json, 2) + "\n");
  return 0;
}

}  // namespace longstride::cli
