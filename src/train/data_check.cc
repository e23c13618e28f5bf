#include "train/data_check.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "train/step.h"

namespace longstride {
namespace {

ScanOptions options_of(const RunPlan& plan, int threads) {
  return {.vocabulary = plan.model.config.vocabulary,
          .document_token = plan.config.data.document_token,
          .threads = threads};
}

void check(const CorpusFacts& facts, const Corpus& corpus, const ScanOptions& options,
           std::int64_t context, bool each_alone) {
  check_facts(facts, corpus, options);
  for (const std::string& line : fact_warnings(facts, corpus, options)) log_warning("{}", line);
  // warn_about_sizes has warned of a context longer than all data.
  if (each_alone && facts.longest_document < context && context <= facts.tokens)
    log_warning(
        "training.context is {}, but the longest document has {} tokens, and data.pack = false "
        "gives each a sequence of its own",
        context, facts.longest_document);
}

}  // namespace

CorpusFacts scan_data(const RunPlan& plan) {
  return scan_corpus(*plan.corpus, options_of(plan, thread_count()));
}

void check_data(const RunPlan& plan, const CorpusFacts& facts) {
  check(facts, *plan.corpus, options_of(plan, 1), plan.config.training.context,
        plan.config.data.pack == Packing::kDocuments);
}

void warn_about_sizes(const RunPlan& plan) {
  const std::int64_t context = plan.config.training.context, tokens = plan.corpus->tokens();
  if (context > tokens)
    log_warning("training.context is {}, but the data hold {} tokens: no sequence is longer",
                context, tokens);
  constexpr std::int64_t kU16Values = 65536;
  if (plan.config.data.format == "u16" && plan.model.config.vocabulary > kU16Values)
    log_warning(
        "data.format is \"u16\" and the model's vocabulary has {} tokens: those above {} cannot "
        "occur, and became other tokens if they were truncated to 16 bits",
        plan.model.config.vocabulary, kU16Values - 1);
}

DataScan::DataScan(const RunPlan& plan)
    // A few threads are faster than a disk; on a CPU the others belong to the step.
    : corpus_(plan.corpus),
      options_(options_of(plan, std::clamp(thread_count() / 2, 1, 4))),
      context_(plan.config.training.context),
      each_alone_(plan.config.data.pack == Packing::kDocuments) {
  options_.stop = &stop_;
  options_.done = &done_;
  thread_ = std::thread([this] {
    try {
      facts_ = scan_corpus(*corpus_, options_);
    } catch (...) {
      error_ = std::current_exception();
    }
    ended_ = true;
  });
}

DataScan::~DataScan() {
  stop_ = true;
  thread_.join();
}

void DataScan::wait(const std::function<bool()>& should_stop) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::seconds kSilent{2}, kBetween{60};
  for (auto tell = Clock::now() + kSilent; !ended_;) {
    if (should_stop && should_stop()) throw Interrupted("stopped while the data were checked");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (Clock::now() < tell) continue;
    log_info("the first update waits until all tokens have been checked: {:.0f}% so far",
             100.0 * static_cast<double>(done_) / static_cast<double>(corpus_->tokens()));
    tell += kBetween;
  }
  if (std::exchange(told_, true)) return;
  if (error_) std::rethrow_exception(error_);
  check(facts_, *corpus_, options_, context_, each_alone_);
}

}  // namespace longstride
