// Rates are found again from times that they predict, and a calibration of this machine is complete
// and cached.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>
#include <set>

#include "base/cache_folder.h"
#include "base/error.h"
#include "plan/calibrate.h"
#include "plan/calibration_fit.h"
#include "plan/machines.h"
#include "plan/this_machine.h"
#include "tests/data/temp_directory.h"

namespace longstride {
namespace {

TimedProduct timed(double rows, double inner, double outer, const ProductRates& rates) {
  TimedProduct p{rows, inner, outer};
  p.seconds = p.flops() / rates.rate(rows, inner, outer);
  return p;
}

TEST(CalibrationFit, FindsTheRatesOfProducts) {
  const ProductRates rates{700e12, 40, 60};
  std::vector<TimedProduct> all;
  for (const double rows : {1024.0, 4096.0})
    for (const double inner : {512.0, 3584.0, 18944.0})
      for (const double outer : {512.0, 3584.0}) all.push_back(timed(rows, inner, outer, rates));
  const ProductRates found = fit_products(all);
  for (const TimedProduct& p : all)
    EXPECT_NEAR(found.rate(p.rows, p.inner, p.outer) / rates.rate(p.rows, p.inner, p.outer), 1,
                0.02);
  EXPECT_NEAR(fit_peak({timed(2048, 3584, 32768, {350e12, 40, 60})}, rates), 350e12, 1e6);
}

TEST(CalibrationFit, FindsWhereARateSaturates) {
  const auto work = [](double n, double peak, double half) {
    return TimedWork{n, 1e12 * n, 1e12 * (n + half) / peak};
  };
  const Saturating found = fit_saturating(work(4096, 600e12, 800), work(28672, 600e12, 800));
  EXPECT_NEAR(found.peak, 600e12, 1e6);
  EXPECT_NEAR(found.half, 800, 1e-6);
  // Noise: a small one that seems faster than the large one, or absurdly slow.
  EXPECT_EQ(fit_saturating({10, 10, 1}, {100, 100, 20}).half, 0);
  const Saturating slow = fit_saturating({10, 10, 1000}, {100, 100, 11});
  EXPECT_EQ(slow.half, 10);
  EXPECT_GT(slow.peak, 0);
  EXPECT_EQ(remaining_seconds(10, 4), 6);
  EXPECT_EQ(remaining_seconds(10, 12), 2);
}

class ThisMachine : public testing::Test {
 protected:
  void SetUp() override { setenv("LONGSTRIDE_CACHE", (directory_.path() / "cache").c_str(), 1); }
  void TearDown() override { unsetenv("LONGSTRIDE_CACHE"); }

  TempDirectory directory_;
  std::unique_ptr<Device> device_ = make_cpu_device();
};

// Every figure that is said to be measured differs from the one before.
TEST_F(ThisMachine, ACalibrationMeasuresEveryRate) {
  const MachineRates base = estimated_rates(*device_);
  const Calibration made =
      calibrate(*device_, base, {.seconds = 0.1, .disk_path = directory_.path()});
  EXPECT_TRUE(made.rates.measured);
  EXPECT_EQ(made.rates.compute, DType::kF32);
  const Json before = parse_json(dump_json(to_json(base)), "a test").flatten(),
             after = parse_json(dump_json(to_json(made.rates)), "a test").flatten();
  std::vector<std::string> same;
  for (const auto& [field, value] : after.items())
    if (value.is_number() && before.at(field) == value) same.push_back(field);
  // Those that may be what they were: not measured, or at a bound.
  const std::set<std::string> may = {"/attention/half_tiles",
                                     "/copies/beside",
                                     "/device_bytes",
                                     "/attention/exact_backward",
                                     "/attention/exact_selected",
                                     "/attention/half_own",
                                     "/attention/half_keys_forward",
                                     "/attention/half_keys_backward",
                                     "/products/half_tiles",
                                     "/products/half_inner",
                                     "/peak_flops",
                                     "/host_bytes"};
  for (const std::string& field : same) EXPECT_TRUE(may.contains(field)) << field;
  // The table is valid.
  EXPECT_EQ(machine_rates_from_json(parse_json(dump_json(to_json(made.rates)), "a test"), "here"),
            made.rates);
  const Calibration without = calibrate(*device_, base, {.seconds = 0.1});
  EXPECT_EQ(without.rates.copies.disk_read, base.copies.disk_read);
  EXPECT_NE(without.rates.source.find("copies.disk_read"), std::string::npos);
}

TEST_F(ThisMachine, ACalibrationIsRemembered) {
  EXPECT_FALSE(cached_calibration(*device_));
  // What is free changes all the time.
  const auto without_memory = [](MachineRates r) {
    r.device_bytes = r.host_bytes = 0;
    return r;
  };
  EXPECT_EQ(without_memory(rates_of_this_machine(*device_)),
            without_memory(estimated_rates(*device_)));
  MachineRates rates = estimated_rates(*device_);
  rates.measured = true;
  rates.memory = 12345;
  const auto file = cache_calibration(*device_, rates);
  ASSERT_TRUE(file);
  EXPECT_EQ(file, calibration_file(*device_));
  EXPECT_EQ(rates_of_this_machine(*device_), rates);

  // Of another library, and damaged.
  Json json = read_json(*file);
  json["key"] = "other";
  std::ofstream(*file) << dump_json(json);
  EXPECT_FALSE(cached_calibration(*device_));
  json["key"] = machine_key(*device_);
  json["rates"].erase("memory");
  std::ofstream(*file) << dump_json(json);
  EXPECT_FALSE(cached_calibration(*device_));
  std::ofstream(*file) << "[";
  EXPECT_FALSE(cached_calibration(*device_));

  setenv("LONGSTRIDE_CACHE", "off", 1);
  EXPECT_FALSE(cache_folder());
  EXPECT_FALSE(cache_calibration(*device_, rates));
  EXPECT_EQ(rates_of_this_machine(*device_), estimated_rates(*device_));
}

TEST(Machines, AreFoundByTheNamesOfTheirGpus) {
  const auto name_with = [](const char* device) {
    const MachineRates* found = machine_with(device);
    return found != nullptr ? found->name : "";
  };
  EXPECT_EQ(name_with("NVIDIA H200"), "h200");
  EXPECT_EQ(name_with("NVIDIA H100 80GB HBM3"), "h100");
  EXPECT_EQ(name_with("NVIDIA A100-SXM4-80GB"), "a100");
  EXPECT_EQ(name_with("NVIDIA L40S"), "l40s");
  EXPECT_EQ(name_with("NVIDIA GeForce RTX 4090"), "rtx4090");
  EXPECT_EQ(name_with("NVIDIA B200"), "b200");
  for (const char* other :
       {"NVIDIA GH200 480GB", "NVIDIA GB200", "NVIDIA H100 PCIe", "NVIDIA A100-PCIE-80GB",
        "NVIDIA A100-SXM4-40GB", "NVIDIA H200 MIG 1g.18gb", "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA H200 NVL", "AMD EPYC 7763 64-Core Processor"})
    EXPECT_EQ(name_with(other), "") << other;
}

}  // namespace
}  // namespace longstride
