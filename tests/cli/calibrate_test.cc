// longstride calibrate, on the CPU and in a hurry.
#include <gtest/gtest.h>

#include "base/json.h"
#include "plan/machine_rates.h"
#include "tests/cli/run_program.h"
#include "tests/data/temp_directory.h"

namespace longstride {
namespace {

TEST(Calibrate, WritesTheRatesOfThisMachineAndRemembersThem) {
  const TempDirectory directory;
  const std::filesystem::path out = directory.path() / "rates.json", cache = directory.path() / "c";
  const ProgramResult run =
      run_program({"calibrate", "--device", "cpu", "--seconds", "0.1", "--json", "--out",
                   out.string(), "--disk-path", directory.path().string()},
                  {.environment = {{"LONGSTRIDE_CACHE", cache.string()}}});
  ASSERT_EQ(run.status, 0) << run.text();
  const MachineRates rates = read_machine_rates(out);
  EXPECT_TRUE(rates.measured);
  EXPECT_EQ(machine_rates_from_json(parse_json(run.out, "stdout"), "stdout"), rates);
  std::vector<std::filesystem::path> cached;
  for (const auto& entry : std::filesystem::directory_iterator(cache / "machines"))
    cached.push_back(entry.path());
  ASSERT_EQ(cached.size(), 1u);
  EXPECT_EQ(machine_rates_from_json(read_json(cached[0])["rates"], "cached"), rates);
}

TEST(Calibrate, RefusesWhatItCannotDo) {
  const TempDirectory directory;
  const RunOptions off{.environment = {{"LONGSTRIDE_CACHE", "off"}}};
  const ProgramResult disk = run_program({"calibrate", "--device", "cpu", "--seconds", "0.1",
                                          "--disk-path", (directory.path() / "no").string()},
                                         off);
  EXPECT_EQ(disk.status, 2) << disk.text();
  const std::filesystem::path other = directory.path() / "other.txt";
  directory.write_text("other.txt", "something else");
  const ProgramResult out =
      run_program({"calibrate", "--device", "cpu", "--out", other.string()}, off);
  EXPECT_EQ(out.status, 2) << out.text();
  EXPECT_EQ(run_program({"calibrate", "--seconds", "0"}, off).status, 2);
}

}  // namespace
}  // namespace longstride
