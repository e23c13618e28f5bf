// Summarizes a device's recorded activity: where the time went.
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
    double idle_before_s = 0;  // of the compute queue, until one of these began
  };
  double span_s = 0;      // from the first start to the last end
  double idle_s = 0;      // part of the span in which the compute queue was idle
  std::vector<Row> rows;  // kernels, copies and fills, the longest first

  double idle_share() const { return span_s > 0 ? idle_s / span_s : 0; }
};

// The compute queue: the one whose kernels took longest. 0 if there are no kernels.
std::uint32_t computing_queue(const std::vector<Activity>& activities);
ActivitySummary summarize(const std::vector<Activity>& activities);
OrderedJson to_json(const ActivitySummary& summary);

}  // namespace longstride
