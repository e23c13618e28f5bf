// Every token of a run's data is looked at before the weights change: by a dry run at once, by a
// real one beside its first step.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <thread>

#include "data/corpus_scan.h"
#include "train/run_plan.h"

namespace longstride {

// Looks at all data, with all threads that the process may use. Throws Error where a file has
// changed.
CorpusFacts scan_data(const RunPlan& plan);
// Throws Error where the data cannot be what was meant, and warns where they probably are not.
void check_data(const RunPlan& plan, const CorpusFacts& facts);
// Warns of what sizes alone tell; plan_run has called it.
void warn_about_sizes(const RunPlan& plan);

// scan_data and check_data on threads of their own, which leave the pool of parallel_for to the
// step. The plan may be moved or destroyed meanwhile. For one thread.
class DataScan {
 public:
  explicit DataScan(const RunPlan& plan);  // begins
  DataScan(const DataScan&) = delete;
  DataScan& operator=(const DataScan&) = delete;
  ~DataScan();  // breaks off what is not done

  // Waits for the end; then warns, or throws Error, as check_data does. Throws Interrupted where
  // should_stop (if any) becomes true meanwhile. Later calls return at once.
  void wait(const std::function<bool()>& should_stop);

 private:
  std::shared_ptr<const Corpus> corpus_;
  ScanOptions options_;
  std::int64_t context_ = 0;
  bool pack_ = true, told_ = false;
  std::atomic<bool> stop_{false}, ended_{false};
  std::atomic<std::int64_t> done_{0};
  CorpusFacts facts_;
  std::exception_ptr error_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace longstride
