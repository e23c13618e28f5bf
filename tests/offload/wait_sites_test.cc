// Every wait has a test that omits it.
#include "tests/offload/wait_sites.h"

#include <map>

namespace longstride {
namespace {

// The test that omits the waits of an owner, one at a time.
const std::map<std::string, std::string> kTests = {
    {"activations", "tests/train/step_offloaded_activations_test.cc"},
    {"messages", "tests/train/message_port_test.cc"},
    {"offload", "tests/pages/tiered_pages_test.cc"},
    {"optimizer", "tests/train/optimizer_order_test.cc"},
    {"pages", "tests/pages/tiered_pages_test.cc"},
    {"weights", "tests/model/load_weights_test.cc"},
};

TEST(WaitSites, EachIsLeftOutByATest) {
  std::set<std::string> owners;
  for (const std::string& site : wait_sites_in_sources()) owners.insert(owner_of(site));
  for (const std::string& owner : owners) {
    ASSERT_TRUE(kTests.contains(owner)) << "no test leaves out the waits of " << owner;
    const std::string text = read_text(source_directory() / kTests.at(owner));
    EXPECT_NE(text.find("wait_sites_of(\"" + owner + "\")"), std::string::npos) << owner;
  }
  EXPECT_EQ(owners.size(), kTests.size()) << "a test of waits that are gone";
}

// Every site is defined in the form that the search of the sources expects.
TEST(WaitSites, AllAreFound) {
  const std::set<std::string> found = wait_sites_in_sources();
  std::size_t listed = 0;
  for (const WaitSite* site = WaitSite::first(); site != nullptr; site = site->next(), ++listed)
    EXPECT_TRUE(found.contains(site->name())) << site->name();
  EXPECT_LE(listed, found.size());
  EXPECT_EQ(found.size(), 24u) << "change this with the sites";
}

}  // namespace
}  // namespace longstride
