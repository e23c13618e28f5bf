// The pages that sparse layers selected, for others to check and look at.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "attention/selected_lists.h"

namespace longstride::cli {

// One int32 tensor "layers.N" [query pages, budget + forced pages] per sparse layer: a query page's
// selected pages, ascending, then -1. The chunk's own pages are not listed.
void write_lists(const std::filesystem::path& path, const SelectedLists& selected,
                 const SparseLayers& sparse, const SequenceLayout& layout);
// An SVG with one square per sparse layer: rows are query pages, columns are pages.
void write_picture(const std::filesystem::path& path, const SelectedLists& selected,
                   const SparseLayers& sparse, const SequenceLayout& layout);

// Every query page's selected pages, by sparse layer.
using PageLists = std::vector<std::vector<std::int32_t>>;
PageLists all_lists(const SelectedLists& selected, const SparseLayers& sparse,
                    const SequenceLayout& layout);
// The share of the first lists' pages that are in the second ones too.
double share_of_same_pages(const PageLists& a, const PageLists& b);

// Throw Error, before anything is computed, if no layer is sparse or the file cannot be written.
void check_lists_output(const std::filesystem::path& path, const SparseLayers& sparse,
                        const std::filesystem::path& model);
void check_picture_output(const std::filesystem::path& path, const SparseLayers& sparse);

}  // namespace longstride::cli
