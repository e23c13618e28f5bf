// The places where one lane waits for another, for tests that omit each of them.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "device/wait_site.h"
#include "tests/where.h"

namespace longstride {

// The prefix before the slash.
inline std::string owner_of(const std::string& site) { return site.substr(0, site.find('/')); }

// The names of all sites that are defined under src.
inline std::set<std::string> wait_sites_in_sources() {
  const std::regex definition("WaitSite\\s+\\w+\\s*[{(=]\\s*(?:WaitSite[{(])?\"([^\"]+)\"");
  std::set<std::string> names;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(source_directory() / "src")) {
    if (!entry.is_regular_file() || entry.path().filename() == "wait_site.h") continue;
    const std::string text = read_text(entry.path());
    for (std::sregex_iterator match(text.begin(), text.end(), definition), end; match != end;
         ++match)
      EXPECT_TRUE(names.insert((*match)[1]).second) << (*match)[1] << " names two sites";
  }
  return names;
}

// The sites of an owner: a test omits each of them. Fails if the sources define one that this
// program lacks, or the other way round.
inline std::vector<const WaitSite*> wait_sites_of(std::string_view owner) {
  std::vector<const WaitSite*> sites;
  std::set<std::string> names, expected;
  for (const WaitSite* site = WaitSite::first(); site != nullptr; site = site->next())
    if (owner_of(site->name()) == owner) {
      sites.push_back(site);
      names.insert(site->name());
    }
  for (const std::string& name : wait_sites_in_sources())
    if (owner_of(name) == owner) expected.insert(name);
  EXPECT_EQ(names, expected);
  EXPECT_FALSE(sites.empty()) << owner;
  return sites;
}

inline const WaitSite* wait_site(std::string_view name) {
  const WaitSite* site = WaitSite::first();
  while (site != nullptr && site->name() != name) site = site->next();
  LS_CHECK(site != nullptr, "nobody waits at {}", name);
  return site;
}

}  // namespace longstride
