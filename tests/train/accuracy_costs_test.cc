// What plans say that settings cost in accuracy.
#include "train/accuracy_costs.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "device/device.h"
#include "tensor/dtype_words.h"
#include "tests/where.h"

namespace longstride {
namespace {

// A row of the table in docs/sparse.md.
std::string row_of(const PageError& e) {
  constexpr const char* kPages[] = {"K/V", "K/V of all layers", "gradients"};
  std::string row = fmt::format("| {} | {} | {} |", e.sparse ? "sparse" : "dense",
                                kPages[static_cast<std::size_t>(e.pages)], word_of_pages(e.type));
  for (const double percent : e.percent)
    row += percent < 0 ? " |" : fmt::format(" {:.1f}% |", percent);
  return row + (e.experimental() ? " experimental |" : " |");
}

TEST(AccuracyCosts, AreThoseOfTheDocument) {
  const std::string page = read_text(source_directory() / "docs/sparse.md");
  EXPECT_EQ(page_errors().size(), 14U);
  for (const PageError& e : page_errors())
    EXPECT_NE(page.find(row_of(e) + "\n"), std::string::npos) << row_of(e);
}

TEST(AccuracyCosts, ErrorsThatGrowAreExperimental) {
  const auto experimental = [](std::array<double, 4> percent) {
    return PageError{false, PageError::Pages::kGradients, DType::kI8, percent}.experimental();
  };
  EXPECT_FALSE(experimental({1, 1, 1, 1}));
  EXPECT_FALSE(experimental({4.9, 4.9, 4.9, 4.8}));
  EXPECT_FALSE(experimental({-1, 0.5, 1, 2}));
  EXPECT_TRUE(experimental({-1, 0.5, 1.5, 3}));  // 6% next
  EXPECT_TRUE(experimental({5.1, 1, 1, 1}));
}

std::vector<std::string> costs_of(std::vector<std::string> settings) {
  const auto device = make_shapes_device(
      DeviceKind::kCpu, {"a machine", std::int64_t{1} << 40, std::int64_t{1} << 40});
  return accuracy_costs(plan_shapes(parse_train_config(R"([model]
preset = "tiny-llama"
dtype = "f32"
[data]
path = "tokens.bin"
[training]
context = "64K"
chunk = 256
steps = 10
[checkpoint]
directory = "out"
)",
                                                       "run.toml", "base", settings),
                                    *device));
}

TEST(AccuracyCosts, OnlyOfWhatTheRunHas) {
  EXPECT_EQ(costs_of({}), std::vector<std::string>());
  const std::vector<std::string> dense = costs_of({"numerics.kv_dtype=int8"});
  ASSERT_EQ(dense.size(), 1U);
  EXPECT_EQ(dense[0],
            "keys and values in int8, dense layers: gradients differ by 0.6% at 256 chunks, in the "
            "parameters that suffer most");
  const std::vector<std::string> all = costs_of({"attention.kv_dtype=int8"});
  ASSERT_EQ(all.size(), 1U);
  EXPECT_NE(all[0].find("4.2% at 256 chunks"), std::string::npos) << all[0];
  const std::string both = fmt::format(
      "{}",
      fmt::join(costs_of({"numerics.kv_gradient_dtype=fp8", "training.context=512K",
                          "attention.layers=[\"sparse\", \"dense\"]", "optimizer.state=8bit"}),
                "\n"));
  for (const char* part :
       {"gradients of pages in fp8, dense layers: gradients differ by 21% at 1024",
        "sparse layers: gradients differ by 1.1%", "2048 chunks were not measured; experimental",
        "attend to 64 of 4096 pages", "moments in 8 bits"})
    EXPECT_NE(both.find(part), std::string::npos) << part << "\n" << both;
}

}  // namespace
}  // namespace longstride
