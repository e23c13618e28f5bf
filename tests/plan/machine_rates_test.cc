// Rates of machines as JSON, and the machines that are known by name.
#include "plan/machine_rates.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "plan/machines.h"

namespace longstride {
namespace {

Json as_json(const MachineRates& rates) { return parse_json(dump_json(to_json(rates)), "a test"); }

TEST(MachineRates, SurviveAFile) {
  for (const std::string& name : machine_names()) {
    const MachineRates& rates = find_machine(name);
    EXPECT_EQ(machine_rates_from_json(as_json(rates), "a test"), rates) << name;
  }
}

// Every figure is needed, and none of them may be out of range.
TEST(MachineRates, ADamagedTableIsRefusedWithOneMessage) {
  const Json good = as_json(find_machine("h200"));
  const auto refused = [](const Json& json, const std::string& field, const std::string& why) {
    try {
      machine_rates_from_json(json, "machine.json");
      ADD_FAILURE() << field << ": " << why;
    } catch (const Error& e) {
      const std::string message = e.what();
      EXPECT_EQ(message.find("machine.json: " + field), 0u) << message;
      EXPECT_NE(message.find(why), std::string::npos) << message;
      EXPECT_EQ(message.find('\n'), std::string::npos) << message;
      EXPECT_FALSE(e.hint().empty());
    }
  };
  std::size_t fields = 0;
  const Json flat = good.flatten();
  for (const auto& [pointer, value] : flat.items()) {
    const Json::json_pointer at(pointer);
    std::string field = pointer.substr(1);
    std::replace(field.begin(), field.end(), '/', '.');
    ++fields;
    Json json = good;
    json[at.parent_pointer()].erase(at.back());
    refused(json, field, "is missing");
    json[at] = Json::array();
    refused(json, field, "is not");
    if (!value.is_number()) continue;
    json[at] = -1;
    refused(json, field, "is -1");
  }
  EXPECT_GT(fields, 30u);

  Json json = good;
  json["copies"]["from_hots"] = 1;
  refused(json, "copies.from_hots", "is unknown");
  json = good;
  json["extra"] = Json::object();
  refused(json, "extra", "is unknown");
  json = good;
  json["attention"] = 3;
  refused(json, "attention.earlier_forward", "is missing");
  json = good;
  json["products"]["peak"] = 0;
  refused(json, "products.peak", "above 0");
  json = good;
  json["compute"] = "f13";
  refused(json, "compute", "f13");
  refused(Json::array(), "the rates", "not an object");
}

TEST(Machines, AnUnknownNameHasTheNearestAsItsHint) {
  try {
    find_machine("h20");
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("'h20'"), std::string::npos);
    EXPECT_NE(e.hint().find("did you mean h200?"), std::string::npos) << e.hint();
    EXPECT_NE(e.hint().find("rtx4090"), std::string::npos) << e.hint();
  }
}

TEST(Machines, EstimatesSaySoAndWhereTheyAreFrom) {
  const MachineRates& h200 = find_machine("h200");
  EXPECT_TRUE(h200.measured);
  for (const std::string name : {"h100", "a100", "l40s", "rtx4090", "b200"}) {
    const MachineRates& m = find_machine(name);
    EXPECT_FALSE(m.measured) << name;
    EXPECT_EQ(m.source.find("estimate: NVIDIA"), 0u) << m.source;
    EXPECT_NE(m.source.find("data sheet") != std::string::npos,
              m.source.find("architecture") != std::string::npos);
    // The same shares of the data sheet.
    EXPECT_NEAR(m.products.peak / m.peak_flops, h200.products.peak / h200.peak_flops, 1e-9);
    EXPECT_NEAR(m.attention.own_backward / m.peak_flops,
                h200.attention.own_backward / h200.peak_flops, 1e-9);
  }
  EXPECT_EQ(find_machine("h100").peak_flops, h200.peak_flops);
  EXPECT_LT(find_machine("h100").memory, h200.memory);
  EXPECT_EQ(find_machine("a100").copies.from_host, h200.copies.from_host / 2);
  EXPECT_GT(find_machine("b200").products.peak, 2 * h200.products.peak);
}

}  // namespace
}  // namespace longstride
