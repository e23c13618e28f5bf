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
  r.correct = 2000;
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
  r.elapsed = 41.7;
  set_rates(r, 5e11);
  EXPECT_EQ(format_step_line(r),
            "step 12/100  loss 3.2188  grad 1.20  lr 1.0e-04  4096 tok/s  1.8 GiB  0:41");
  r.seconds_left = 4205;
  set_rates(r, 5e14, 1e15);
  EXPECT_EQ(format_step_line(r),
            "step 12/100  loss 3.2188  grad 1.20  lr 1.0e-04  4096 tok/s  0:41<1:10:05");
  r.step = r.total_steps = 1;
  EXPECT_EQ(format_step_line(r),
            "step 1/1  loss 3.2188  grad 1.20  lr 1.0e-04  4096 tok/s  MFU 25%  0:41<1:10:05");
  r.skipped = true;
  r.loss = r.gradient_norm = NAN;
  EXPECT_NE(format_step_line(r).find("loss nan  skipped"), std::string::npos);
}

TEST(StepRecord, TheLineFits80Columns) {
  StepRecord r = example();
  for (const double big : {1.0, 1e3, 1e6})
    for (const bool skipped : {false, true}) {
      r.step = static_cast<std::int64_t>(big);
      r.total_steps = 10 * r.step;
      r.elapsed = 3.0 * big;
      r.seconds_left = 10.0 * big;
      r.gradient_norm = big / 3;
      r.tokens_per_s = 0.7 * big;
      r.mfu = 0.5;
      r.skipped = skipped;
      EXPECT_LE(format_step_line(r).size(), 80u) << format_step_line(r);
    }
}

TEST(StepRecord, Durations) {
  EXPECT_EQ(format_duration(0.4), "0:00");
  EXPECT_EQ(format_duration(65), "1:05");
  EXPECT_EQ(format_duration(3605), "1:00:05");
  EXPECT_EQ(format_duration(2 * 86400 + 3605), "2d01h");
  EXPECT_EQ(timestamp().size(), std::string("2026-01-31T12:00:00.123Z").size());
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

// docs/metrics.md lists all keys, in the order of the file.
TEST(StepRecord, KeysAreDocumented) {
  std::vector<std::string> documented, written;
  std::istringstream page(read_text(source_directory() / "docs/metrics.md"));
  for (std::string line; std::getline(page, line);)
    if (line.starts_with("| `")) documented.push_back(line.substr(3, line.find('`', 3) - 3));
  StepRecord sparse = example();
  sparse.selection = {.unions = 1, .pages = 3, .most = 3, .visits = 5};
  sparse.ranks = 2;
  const OrderedJson json = record_to_json(sparse);
  for (const auto& [key, value] : json.items()) written.push_back(key);
  EXPECT_EQ(documented, written);
}

}  // namespace
}  // namespace longstride
