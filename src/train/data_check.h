// Reads every token of a run's data before the weights change: at once in a dry run, during the
// first step in a real one.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <thread>

#include "data/corpus_scan.h"
#include "train/run_plan.h"

namespace longstride {

// Reads all data, with all threads that the process may use. Throws Error if a file has changed.
CorpusFacts scan_data(const RunPlan& plan);
// Throws Error if the data are invalid, and warns if they are probably not what was meant.
void check_data(const RunPlan& plan, const CorpusFacts& facts);
// Warns about problems that sizes alone show; called by plan_run.
void warn_about_sizes(const RunPlan& plan);

// scan_data and check_data on separate threads, which leave the pool of parallel_for to the step.
// The plan may be moved or destroyed meanwhile. Not thread-safe: the thread that runs the steps
// owns it.
class DataScan {
 public:
  explicit DataScan(const RunPlan& plan);  // starts the scan
  DataScan(const DataScan&) = delete;
  DataScan& operator=(const DataScan&) = delete;
  ~DataScan();  // cancels a scan in progress

  // Waits for the end; then warns, or throws Error, as check_data does. Throws Interrupted if
  // should_stop (if any) becomes true meanwhile. Later calls return at once.
  void wait(const std::function<bool()>& should_stop);

 private:
  std::shared_ptr<const Corpus> corpus_;
  ScanOptions options_;
  std::int64_t context_ = 0;
  bool each_alone_ = false, told_ = false;
  std::atomic<bool> stop_{false}, ended_{false};
  std::atomic<std::int64_t> done_{0};
  CorpusFacts facts_;
  std::exception_ptr error_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace longstride
