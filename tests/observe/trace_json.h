// A trace file for tests: parsed, checked for validity, by track.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/json.h"

namespace longstride {

struct TraceEvent {
  std::string name;
  std::int64_t begin_ns = 0, end_ns = 0;
  Json args;
};

struct ParsedTrace {
  std::map<std::string, std::vector<TraceEvent>> tracks;  // every named row, in the file's order
  Json other;

  std::vector<std::string> names(const std::string& track) const {
    std::vector<std::string> names;
    for (const TraceEvent& e : tracks.at(track)) names.push_back(e.name);
    return names;
  }
  const TraceEvent& event(const std::string& track, const std::string& name) const {
    const auto found =
        std::ranges::find_if(tracks.at(track), [&](const TraceEvent& e) { return e.name == name; });
    if (found == tracks.at(track).end()) throw std::runtime_error("no " + name + " in " + track);
    return *found;
  }
};

inline std::int64_t whole_ns(const Json& microseconds) {
  return std::llround(microseconds.get<double>() * 1000);
}

// Events of a row are sorted by start, none ends before it starts, and any two nest or are
// disjoint.
inline void expect_well_formed(const std::string& row, const std::vector<TraceEvent>& events) {
  std::vector<std::int64_t> open;
  std::int64_t last = 0;
  for (const TraceEvent& e : events) {
    EXPECT_GE(e.begin_ns, last) << row << ": " << e.name;
    EXPECT_GE(e.end_ns, e.begin_ns) << row << ": " << e.name;
    last = e.begin_ns;
    while (!open.empty() && open.back() <= e.begin_ns) open.pop_back();
    EXPECT_TRUE(open.empty() || e.end_ns <= open.back()) << row << ": " << e.name;
    open.push_back(e.end_ns);
  }
}

inline ParsedTrace parse_trace(const std::string& text) {
  const Json json = Json::parse(text);
  ParsedTrace trace;
  trace.other = json.at("otherData");
  std::map<int, std::string> rows;
  std::set<std::string> processes;
  for (const Json& e : json.at("traceEvents")) {
    EXPECT_EQ(e.at("pid"), 1);
    if (e.at("ph") == "M") {
      if (e.at("name") == "process_name") processes.insert(e.at("args").at("name"));
      if (e.at("name") != "thread_name") continue;
      const std::string name = e.at("args").at("name");
      EXPECT_TRUE(rows.emplace(e.at("tid"), name).second) << name;
      EXPECT_TRUE(trace.tracks.try_emplace(name).second) << name << " twice";
    } else {
      EXPECT_EQ(e.at("ph"), "X");
      const std::int64_t begin = whole_ns(e.at("ts"));
      trace.tracks.at(rows.at(e.at("tid")))
          .push_back({e.at("name"), begin, begin + whole_ns(e.at("dur")),
                      e.value("args", Json::object())});
    }
  }
  EXPECT_EQ(processes, std::set<std::string>{trace.other.at("title")});
  for (const char* track : {"step", "compute", "from host", "to host", "disk"})
    EXPECT_TRUE(trace.tracks.contains(track)) << track;
  for (const auto& [row, events] : trace.tracks) expect_well_formed(row, events);
  return trace;
}

}  // namespace longstride
