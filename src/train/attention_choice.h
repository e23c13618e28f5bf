// The user's choice of attention per layer, and what it makes of a model: windows and sparse
// layers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/config.h"
#include "tensor/selection.h"

namespace longstride {

struct AttentionChoice {
  // "model": as the model's config.json says. "sparse": its layers without a window are sparse.
  std::string kind = "model";
  // If not empty, replaces the model's: "dense", "window(1024)", "sparse", "sparse(32)", each
  // with "*N" for N layers. A list shorter than the model is repeated.
  std::vector<std::string> layers = {};
  std::int64_t budget = 64;  // of "sparse" without a number
  std::int64_t sinks = 1, recent = 2, union_pages = 512;
  // "outliers", "means", or "auto": outliers, or means where a summary is a single vector.
  std::string summary = "auto";
  std::optional<std::int64_t> summary_tokens = {};  // without it, see default_summary_tokens
  std::string scoring = "focus";                    // or "mass", "oomb"
  // Types of the pages of each layer (train/page_type_choice.h), as `layers`; empty: the same of
  // all.
  std::vector<std::string> kv_dtype = {}, kv_gradient_dtype = {};

  bool operator==(const AttentionChoice&) const = default;
};

// How messages name the settings: "attention.budget", "--budget".
struct AttentionNames {
  std::string kind, layers, budget, sinks, recent, union_pages, summary, summary_tokens, scoring;
};
// Of the keys in [attention], and of the options of commands.
const AttentionNames& attention_keys();
const AttentionNames& attention_options();

// Sets the windows that the pattern asks for, and returns the sparse layers. Throws Error for a
// pattern that is not understood or does not fit the model, and for numbers that contradict each
// other.
SparseLayers apply_attention(const AttentionChoice& choice, const AttentionNames& names,
                             std::int64_t page_tokens, std::int64_t context, ModelConfig& config);

// Whether settings of sparse layers differ from their defaults: without sparse layers they would
// have no effect.
bool chooses_selection(const AttentionChoice& choice);

}  // namespace longstride
