// Where a device's time went, from what it recorded.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "device/device.h"

namespace longstride {

struct ActivitySummary {
  struct Row {
    std::string name;
    std::int64_t calls = 0;
    double seconds = 0;
  };
  double span_s = 0;      // from the first beginning to the last end
  double idle_s = 0;      // of it, with nothing running on the queue that computed most
  std::vector<Row> rows;  // kernels, copies and fills, the longest first

  double idle_share() const { return span_s > 0 ? idle_s / span_s : 0; }
};

// The queue whose kernels took longest: the one that computes. 0 where there are no kernels.
std::uint32_t computing_queue(const std::vector<Activity>& activities);
ActivitySummary summarize(const std::vector<Activity>& activities);
OrderedJson to_json(const ActivitySummary& summary);

}  // namespace longstride
