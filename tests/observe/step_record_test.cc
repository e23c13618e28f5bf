#include "observe/step_record.h"

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "base/files.h"
#include "tests/where.h"

namespace longstride {
namespace {

StepRecord example() {
  StepRecord r;
  r.step = 12;
  r.total_steps = 100;
  r.loss = 3.21875;
  r.gradient_norm = 1.204;
  r.learning_rate = 1e-4;
  r.tokens = 8192;
  r.targets = 8000;
  r.accuracy = 0.25;
  r.seconds = {.total = 2.0, .forward = 0.5, .recompute = 0.4, .backward = 0.9, .update = 0.2};
  r.bytes = {.weights = 1LL << 30,
             .gradients = 1LL << 29,
             .optimizer = 1LL << 28,
             .kv_pages = 1 << 20,
             .kv_gradient_pages = 2 << 20,
             .workspace = 3 << 20,
             .other = 4 << 20};
  r.memory_limit = 8LL << 30;
  r.peak_rss = 3LL << 30;
  return r;
}

TEST(StepRecord, Rates) {
  StepRecord r = example();
  set_rates(r, 5e11);
  EXPECT_DOUBLE_EQ(r.tokens_per_s, 4096);
  EXPECT_DOUBLE_EQ(r.tflops, 0.25);
  EXPECT_FALSE(r.mfu.has_value());
  set_rates(r, 5e11, 1e12);
  EXPECT_DOUBLE_EQ(r.mfu.value(), 0.25);
}

TEST(StepRecord, RatesOfAStepThatTookNoTime) {
  StepRecord r = example();
  r.seconds.total = 0;
  set_rates(r, 5e11, 1e12);
  EXPECT_EQ(r.tokens_per_s, 0);
  EXPECT_EQ(r.tflops, 0);
  EXPECT_EQ(r.mfu.value(), 0);
}

TEST(StepRecord, Line) {
  StepRecord r = example();
  set_rates(r, 5e11);
  EXPECT_EQ(format_step_line(r),
            "step 12/100 | loss 3.2188 | grad 1.204 | lr 1.00e-04 | 1.76 GiB (22%) | 4096 tok/s | "
            "0.2500 TFLOP/s");
  set_rates(r, 5e14, 1e15);
  EXPECT_EQ(format_step_line(r),
            "step 12/100 | loss 3.2188 | grad 1.204 | lr 1.00e-04 | 1.76 GiB (22%) | 4096 tok/s | "
            "250 TFLOP/s | MFU 25.0%");
}

TEST(StepRecord, LineTellsOfPagesThatMoved) {
  StepRecord r = example();
  EXPECT_EQ(format_step_line(r).find("pages"), std::string::npos);
  r.moved_out = 1LL << 30;
  r.moved_in = 5LL << 29;
  EXPECT_NE(format_step_line(r).find(" | pages 1.00 GiB out, 2.50 GiB in"), std::string::npos);
}

TEST(StepRecord, LineWithoutLimit) {
  StepRecord r = example();
  r.memory_limit = 0;
  EXPECT_NE(format_step_line(r).find("1.76 GiB |"), std::string::npos);
}

TEST(StepRecord, Json) {
  StepRecord r = example();
  set_rates(r, 5e11);
  const OrderedJson json = record_to_json(r);
  EXPECT_EQ(json["step"], 12);
  EXPECT_EQ(json["loss"], 3.21875);
  EXPECT_EQ(json["seconds"], 2.0);
  EXPECT_EQ(json["seconds_recompute"], 0.4);
  EXPECT_EQ(json["bytes_kv_gradient_pages"], 2 << 20);
  EXPECT_EQ(json["bytes"], r.bytes.total());
  EXPECT_EQ(json["bytes_limit"], 8LL << 30);
  EXPECT_TRUE(json["mfu"].is_null());
}

TEST(StepRecord, JsonOfWhatIsNotFinite) {
  StepRecord r = example();
  r.loss = std::nan("");
  r.gradient_norm = std::numeric_limits<double>::infinity();
  const Json json = Json::parse(record_to_json(r).dump());
  EXPECT_TRUE(json["loss"].is_null());
  EXPECT_TRUE(json["gradient_norm"].is_null());
}

// docs/metrics.md lists the keys, all of them, in the order of the file.
TEST(StepRecord, KeysAreDocumented) {
  std::vector<std::string> documented, written;
  std::istringstream page(read_text(source_directory() / "docs/metrics.md"));
  for (std::string line; std::getline(page, line);)
    if (line.starts_with("| `")) documented.push_back(line.substr(3, line.find('`', 3) - 3));
  const OrderedJson json = record_to_json(example());
  for (const auto& [key, value] : json.items()) written.push_back(key);
  EXPECT_EQ(documented, written);
}

}  // namespace
}  // namespace longstride
