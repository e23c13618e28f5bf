#include "train/attention_choice.h"

#include <charconv>
#include <string_view>

#include "attention/selected_lists.h"
#include "base/error.h"
#include "schedule/numerics.h"
#include "train/layer_pattern.h"

namespace longstride {
namespace {

// Pages whose keys the matrix kernels can score.
constexpr std::int64_t kPageMultiple = 16;

struct LayerAttention {
  std::int64_t window = 0, budget = SparseLayers::kNone;
};

constexpr const char* kKinds = "dense, window(1024), sparse or sparse(32)";

LayerAttention parse_kind(const AttentionChoice& choice, const AttentionNames& names,
                          const std::string& word) {
  const auto misunderstood = [&] {
    return Error(fmt::format("{} has '{}'", names.layers, word),
                 fmt::format("entries are {}, with *24 for 24 layers", kKinds));
  };
  std::string_view kind = word;
  std::optional<std::int64_t> size;
  if (const std::size_t open = kind.find('('); open != std::string_view::npos) {
    if (kind.back() != ')') throw misunderstood();
    const std::string_view number = kind.substr(open + 1, kind.size() - open - 2);
    const char* const number_end = number.data() + number.size();
    const auto [end, error] = std::from_chars(number.data(), number_end, size.emplace());
    if (error != std::errc() || end != number_end || *size < 0) throw misunderstood();
    kind = kind.substr(0, open);
  }
  if (kind == "dense" && !size) return {};
  if (kind == "window" && size.value_or(0) > 0) return {.window = *size};
  if (kind == "sparse") return {.budget = size.value_or(choice.budget)};
  throw misunderstood();
}

void check_selection(const Selection& s, std::int64_t budget, std::int64_t page_tokens,
                     const AttentionNames& names) {
  if (budget < s.forced())
    throw Error(fmt::format("{} is {}, and {} pages are forced ({} {} and {} {})", names.budget,
                            budget, s.forced(), names.sinks, s.sinks, names.recent, s.recent),
                fmt::format("the budget includes the forced pages: raise it, or lower {} and {}",
                            names.sinks, names.recent));
  if (s.union_pages < budget)
    throw Error(fmt::format("{} is {}, less than {} {}", names.union_pages, s.union_pages,
                            names.budget, budget),
                "a chunk's pages include those of every query page: raise it");
  if (s.union_pages > SelectedLists::kMostUnionPages)
    throw Error(fmt::format("{} is {}", names.union_pages, s.union_pages),
                fmt::format("give at most {}", SelectedLists::kMostUnionPages));
  if (page_tokens % kPageMultiple != 0)
    throw Error(fmt::format("sparse attention with pages of {} tokens", page_tokens),
                fmt::format("choose a page of a multiple of {}, e.g. 128", kPageMultiple));
  if (s.summary_tokens < 1 || page_tokens % s.summary_tokens != 0)
    throw Error(fmt::format("{} is {}, and a page has {} tokens", names.summary_tokens,
                            s.summary_tokens, page_tokens),
                "choose a divisor of the page: 128, 64 or 32 for pages of 128");
  if (s.summary == Summary::kOutliers && s.summary_tokens == page_tokens)
    throw Error(fmt::format("{} is outliers, and {} is the page: one vector has room for the mean "
                            "alone",
                            names.summary, names.summary_tokens),
                fmt::format("choose {} {} or less", names.summary_tokens, page_tokens / 2));
}

// One mean of at most 128 keys; or three outliers and the mean of the others, and in long contexts,
// where scoring all pages takes long, one outlier. docs/sparse.md has the reasons.
std::int64_t default_summary_tokens(Summary summary, std::int64_t page_tokens,
                                    std::int64_t context) {
  constexpr std::int64_t kLong = 1 << 18;
  const std::int64_t most = std::min<std::int64_t>(128, page_tokens);
  return summary == Summary::kMeans ? most : context <= kLong ? most / 4 : most / 2;
}

}  // namespace

const AttentionNames& attention_keys() {
  static const AttentionNames names{
      "attention.kind",    "attention.layers",         "attention.budget",
      "attention.sinks",   "attention.recent",         "attention.union_pages",
      "attention.summary", "attention.summary_tokens", "attention.scoring"};
  return names;
}

const AttentionNames& attention_options() {
  static const AttentionNames names{"--attention", "--attention-layers", "--budget",
                                    "--sinks",     "--recent",           "--union",
                                    "--summary",   "--summary-tokens",   "--scoring"};
  return names;
}

bool chooses_selection(const AttentionChoice& choice) {
  AttentionChoice defaults;
  defaults.kind = choice.kind;
  defaults.layers = choice.layers;
  defaults.kv_dtype = choice.kv_dtype;
  defaults.kv_gradient_dtype = choice.kv_gradient_dtype;
  return choice != defaults;
}

SparseLayers apply_attention(const AttentionChoice& choice, const AttentionNames& names,
                             std::int64_t page_tokens, std::int64_t context, ModelConfig& config) {
  std::vector<LayerAttention> layers;
  for (const std::string& word :
       words_of_layers(choice.layers, names.layers, kKinds, config.layers))
    layers.push_back(parse_kind(choice, names, word));
  if (layers.empty())
    for (const std::int64_t window : config.windows)
      layers.push_back(
          {.window = window,
           .budget = choice.kind == "sparse" && window == 0 ? choice.budget : SparseLayers::kNone});
  SparseLayers sparse;
  const std::optional<Summary> summary = choice.summary != "auto" ? summary_of_word(choice.summary)
                                         : choice.summary_tokens == page_tokens
                                             ? Summary::kMeans
                                             : Summary::kOutliers;
  if (!summary)
    throw Error(fmt::format("{} is '{}'", names.summary, choice.summary),
                "choose auto, outliers or means");
  sparse.selection = {.sinks = choice.sinks,
                      .recent = choice.recent,
                      .union_pages = choice.union_pages,
                      .summary_tokens = choice.summary_tokens.value_or(
                          default_summary_tokens(*summary, page_tokens, context)),
                      .summary = *summary};
  const std::optional<Scoring> scoring = scoring_of_word(choice.scoring);
  if (!scoring)
    throw Error(fmt::format("{} is '{}'", names.scoring, choice.scoring),
                "choose mass, focus or oomb");
  sparse.selection.scoring = *scoring;
  config.windows.clear();
  for (const LayerAttention& layer : layers) {
    config.windows.push_back(layer.window);
    sparse.budgets.push_back(layer.budget);
    if (layer.budget != SparseLayers::kNone)
      check_selection(sparse.selection, layer.budget, page_tokens, names);
  }
  return sparse.any() ? sparse : SparseLayers{};
}

}  // namespace longstride
