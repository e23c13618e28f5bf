#include "train/run_data.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "data/corpus_digest.h"
#include "data/file_checksums.h"
#include "data/manifest.h"

namespace longstride {
namespace {

RunOutputs outputs_of(const TrainConfig& config) {
  return {.directories = {config.checkpoint.directory, config.memory.disk_path},
          .files = {config.metrics.file},
          .checkpoints = config.checkpoint.directory};
}

SampleOptions sample_options(const RunPlan& plan) {
  const TrainConfig& config = plan.config;
  SampleOptions options;
  options.context = config.training.context;
  options.pack = config.data.pack;
  options.long_documents = config.data.long_documents == "cut"    ? LongDocuments::kCut
                           : config.data.long_documents == "drop" ? LongDocuments::kDrop
                                                                  : LongDocuments::kSplit;
  options.vocabulary = plan.model.config.vocabulary;
  return options;
}

bool has_documents(const Corpus& corpus) {
  return corpus.document_end(0, corpus.tokens()) < corpus.tokens();
}

void open_training_data(RunPlan& plan) {
  const TrainConfig& config = plan.config;
  const DataConfig& data = config.data;
  CorpusOptions files;
  files.paths = data.path;
  files.format = data.format;
  files.document_token = data.document_token;
  files.document_index = data.document_index;
  files.loss_mask = data.loss_mask;
  files.outputs = outputs_of(config);
  files.shared_format = std::ranges::any_of(
      config.eval.path, [](const auto& path) { return !is_prepared(path, true); });

  SampleOptions options = sample_options(plan);
  options.shuffle = data.shuffle;
  options.seed = static_cast<std::uint64_t>(config.training.seed);
  // A run that began with stubs keeps them, or its position would mean other data.
  options.drop_stub = !plan.resume || plan.resume->state.drops_stub;
  if (data.mix.empty()) {
    plan.corpus = open_corpus(files);
    plan.samples = std::make_unique<SampleStream>(*plan.corpus, options);
  } else {
    plan.sources = open_sources(files);
    plan.corpus = join_sources(plan.sources);
    plan.samples = std::make_unique<SampleStream>(plan.sources, data.mix, options);
  }
  plan.drops_stub = options.drop_stub;
  plan.weighted = plan.corpus->has_weights();
}

void open_eval_data(RunPlan& plan) {
  const TrainConfig& config = plan.config;
  const EvalConfig& eval = config.eval;
  CorpusOptions files;
  files.paths = eval.path;
  files.format = config.data.format;
  files.document_token = config.data.document_token;
  files.document_index = eval.document_index;
  files.loss_mask = eval.loss_mask;
  files.outputs = outputs_of(config);
  files.split = "eval";
  files.shared_format = true;  // refused, if at all, beside data.path
  files.keys.document_index = "eval.document_index";
  files.keys.loss_mask = "eval.loss_mask";
  plan.eval_corpus = open_corpus(files);
  SampleOptions options = sample_options(plan);
  options.shuffle = false;
  plan.eval_samples = std::make_unique<SampleStream>(*plan.eval_corpus, options);
  // Reads them all, so that a token outside the vocabulary does not end the run later.
  check_files(*plan.eval_corpus);
  for (std::int64_t i = 0; i < plan.eval_count(); ++i) plan.eval_samples->sample(i);
}

void tell_left_out(const RunPlan& plan) {
  const LeftOut left = plan.samples->left_out();
  const DataConfig& data = plan.config.data;
  if (left.documents > 0)
    log_info(
        "data.long = \"{}\": {} documents are longer than the context, and {} tokens of them "
        "are left out",
        data.long_documents, left.documents, left.tokens);
  if (left.stub > 0)
    log_info("the last {} tokens of the data do not make a sequence and are left out", left.stub);
}

}  // namespace

std::string data_digest(const RunPlan& plan) {
  if (plan.sources.empty()) return corpus_digest(*plan.corpus);
  std::string digests;
  for (const auto& source : plan.sources) digests += corpus_digest(*source);
  return fmt::format("{:016x}", checksum_of_text(digests));
}

void open_run_data(RunPlan& plan) {
  open_training_data(plan);
  const bool packs = plan.config.data.pack != Packing::kDocuments;
  plan.packed = packs && has_documents(*plan.corpus);
  if (!plan.config.eval.path.empty()) {
    open_eval_data(plan);
    plan.packed = plan.packed || (packs && has_documents(*plan.eval_corpus));
  }
  tell_left_out(plan);
}

}  // namespace longstride
