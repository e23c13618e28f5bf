#include "cli/selected_pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/output_file.h"
#include "model/safetensors_writer.h"

namespace longstride::cli {
namespace {

constexpr const char* kMadeBy = "longstride gradients --lists";
constexpr const char* kPictureBegin =
    "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"longstride-pages\"";

// Calls f(query page of the sequence, its selected pages) in order.
template <class F>
void for_lists(const SelectedLists& selected, std::int64_t layer, const SequenceLayout& layout,
               const F& f) {
  std::vector<std::int32_t> list;
  for (std::int64_t chunk = 0; chunk < layout.chunks(); ++chunk) {
    const PageRun own = layout.chunk_pages(chunk);
    for (std::int64_t q = 0; q < own.size(); ++q) {
      list.clear();
      for (const std::uint16_t i : selected.list(chunk, layer, q))
        list.push_back(selected.pages(chunk, layer)[i]);
      f(own.begin + q, list);
    }
  }
}

void require_sparse(const char* option, const SparseLayers& sparse) {
  if (!sparse.any())
    throw Error(fmt::format("{} without sparse layers", option), "add --attention sparse");
}

// ---- the picture ----

constexpr std::int64_t kMostCells = 96, kSide = 192, kGap = 28, kPerRow = 4, kMargin = 24,
                       kTop = 78;
// From few to all of a cell's pages.
constexpr std::array<const char*, 4> kShades = {"#fde0c5", "#f8b27a", "#ee7f35", "#b84a0c"};
constexpr const char* kOwn = "#4a6fa5";

// One layer: how many pairs of (query page, page) of each cell are visited, and how many could be.
struct Cells {
  std::int64_t n, pages;
  std::vector<double> selected, own, possible;

  explicit Cells(std::int64_t all)
      : n(std::min(all, kMostCells)),
        pages(all),
        selected(static_cast<std::size_t>(n * n)),
        own(selected),
        possible(selected) {}
  std::size_t cell(std::int64_t query, std::int64_t page) const {
    return static_cast<std::size_t>(query * n / pages * n + page * n / pages);
  }
};

Cells count_cells(const SelectedLists& selected, std::int64_t layer, const SequenceLayout& layout) {
  Cells cells(layout.pages());
  const std::int64_t per_chunk = layout.chunk_tokens / layout.page_tokens;
  for_lists(selected, layer, layout,
            [&](std::int64_t query, const std::vector<std::int32_t>& list) {
              for (const std::int32_t page : list) ++cells.selected[cells.cell(query, page)];
              for (std::int64_t page = query / per_chunk * per_chunk; page <= query; ++page)
                ++cells.own[cells.cell(query, page)];
              for (std::int64_t page = 0; page <= query; ++page)
                ++cells.possible[cells.cell(query, page)];
            });
  return cells;
}

// The colour of a cell: a shade, the own chunk's, or none.
std::optional<std::size_t> shade_of(const Cells& cells, std::int64_t row, std::int64_t column) {
  const auto i = static_cast<std::size_t>(row * cells.n + column);
  if (cells.possible[i] == 0 || cells.selected[i] + cells.own[i] == 0) return std::nullopt;
  if (cells.own[i] > cells.selected[i]) return kShades.size();
  const double share = cells.selected[i] / cells.possible[i];
  return std::min(kShades.size() - 1,
                  static_cast<std::size_t>(share * static_cast<double>(kShades.size())));
}

// Rectangles of one colour are one path; equal cells of a row are one rectangle.
std::string draw(const Cells& cells, double x, double y) {
  std::array<std::string, kShades.size() + 1> paths;
  const double size = static_cast<double>(kSide) / static_cast<double>(cells.n);
  for (std::int64_t row = 0; row < cells.n; ++row)
    for (std::int64_t begin = 0, end = 0; begin <= row; begin = end) {
      const std::optional<std::size_t> shade = shade_of(cells, row, begin);
      for (end = begin + 1; end <= row && shade_of(cells, row, end) == shade;) ++end;
      if (!shade) continue;
      const double width = static_cast<double>(end - begin) * size;
      paths[*shade] += fmt::format("M{:.5g} {:.5g}h{:.5g}v{:.5g}h-{:.5g}z",
                                   x + static_cast<double>(begin) * size,
                                   y + static_cast<double>(row) * size, width, size, width);
    }
  std::string svg = fmt::format(
      "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"#fff\" stroke=\"#999\"/>\n", x, y,
      kSide, kSide);
  for (std::size_t i = 0; i < paths.size(); ++i)
    if (!paths[i].empty())
      svg += fmt::format("<path d=\"{}\" fill=\"{}\"/>\n", paths[i],
                         i < kShades.size() ? kShades[i] : kOwn);
  return svg;
}

std::string legend() {
  std::string svg = fmt::format(
      "<rect x=\"{}\" y=\"50\" width=\"12\" height=\"12\" fill=\"{}\"/>"
      "<text x=\"{}\" y=\"60\">own chunk</text>\n",
      kMargin, kOwn, kMargin + 18);
  for (std::size_t i = 0; i < kShades.size(); ++i) {
    const std::int64_t x = kMargin + 110 + 110 * static_cast<std::int64_t>(i);
    svg += fmt::format(
        "<rect x=\"{}\" y=\"50\" width=\"12\" height=\"12\" fill=\"{}\"/><text x=\"{}\" "
        "y=\"60\">{} to {}%</text>\n",
        x, kShades[i], x + 18, 25 * i, 25 * (i + 1));
  }
  return svg;
}

std::string picture(const SelectedLists& selected, const SparseLayers& sparse,
                    const SequenceLayout& layout) {
  std::string body;
  std::int64_t n = 0;
  for (std::int64_t layer = 0; layer < std::ssize(sparse.budgets); ++layer) {
    if (!sparse.is_sparse(layer)) continue;
    const std::int64_t x = kMargin + n % kPerRow * (kSide + kGap),
                       y = kTop + n / kPerRow * (kSide + kGap + 14);
    body += fmt::format("<text x=\"{}\" y=\"{}\">layer {}, budget {}</text>\n", x, y + 8, layer,
                        sparse.budget(layer));
    body += draw(count_cells(selected, layer, layout), static_cast<double>(x),
                 static_cast<double>(y + 14));
    ++n;
  }
  const std::int64_t columns = std::max(std::min(n, kPerRow), std::int64_t{3}),
                     rows = (n + kPerRow - 1) / kPerRow,
                     width = 2 * kMargin + columns * (kSide + kGap) - kGap,
                     height = kTop + rows * (kSide + kGap + 14) + 8;
  return fmt::format(
             "{} width=\"{}\" height=\"{}\" viewBox=\"0 0 {} {}\" "
             "font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n"
             "<rect width=\"100%\" height=\"100%\" fill=\"#fafafa\"/>\n"
             "<text x=\"{}\" y=\"24\" font-size=\"15\">Pages that each page of queries "
             "attends to</text>\n"
             "<text x=\"{}\" y=\"41\">{} tokens, pages of {}. Queries from top to bottom, keys "
             "from left to right. Shades: share selected.</text>\n",
             kPictureBegin, width, height, width, height, kMargin, kMargin, layout.tokens,
             layout.page_tokens) +
         legend() + body + "</svg>\n";
}

}  // namespace

PageLists all_lists(const SelectedLists& selected, const SparseLayers& sparse,
                    const SequenceLayout& layout) {
  PageLists all;
  for (std::int64_t layer = 0; layer < std::ssize(sparse.budgets); ++layer)
    if (sparse.is_sparse(layer))
      for_lists(selected, layer, layout,
                [&](std::int64_t, const std::vector<std::int32_t>& list) { all.push_back(list); });
  return all;
}

double share_of_same_pages(const PageLists& a, const PageLists& b) {
  std::int64_t all = 0, same = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    all += std::ssize(a[i]);
    for (const std::int32_t page : a[i]) same += std::ranges::binary_search(b.at(i), page) ? 1 : 0;
  }
  return all == 0 ? 1 : static_cast<double>(same) / static_cast<double>(all);
}

void write_lists(const std::filesystem::path& path, const SelectedLists& selected,
                 const SparseLayers& sparse, const SequenceLayout& layout) {
  std::vector<TensorToWrite> tensors;
  std::vector<std::int64_t> layers;
  for (std::int64_t layer = 0; layer < std::ssize(sparse.budgets); ++layer)
    if (sparse.is_sparse(layer)) {
      tensors.push_back({fmt::format("layers.{}", layer), DType::kI32,
                         Shape{layout.pages(), sparse.budget(layer) + sparse.selection.forced()}});
      layers.push_back(layer);
    }
  const auto source = [&](std::int64_t i, const ByteSink& sink) {
    const auto width = static_cast<std::size_t>(tensors[static_cast<std::size_t>(i)].shape[1]);
    for_lists(selected, layers[static_cast<std::size_t>(i)], layout,
              [&](std::int64_t, std::vector<std::int32_t> list) {
                list.resize(width, -1);
                sink(std::as_bytes(std::span(list)));
              });
  };
  replace_file_atomic(path, [&](const std::filesystem::path& temporary) {
    write_safetensors_file(temporary, tensors, source, {{"format", "pt"}, {"made_by", kMadeBy}});
  });
}

void write_picture(const std::filesystem::path& path, const SelectedLists& selected,
                   const SparseLayers& sparse, const SequenceLayout& layout) {
  write_file_atomic(path, picture(selected, sparse, layout));
}

void check_lists_output(const std::filesystem::path& path, const SparseLayers& sparse,
                        const std::filesystem::path& model) {
  require_sparse("--lists", sparse);
  const std::filesystem::path directory = std::filesystem::absolute(path).parent_path();
  make_writable_directory(directory);
  if (std::filesystem::equivalent(directory, model) && std::filesystem::exists(path))
    throw Error(fmt::format("{} is a file of the model", path.string()),
                "choose another place for the lists");
  check_output_file(path,
                    {"--lists", "a file of page lists by longstride", [](std::string_view head) {
                       return head.size() > 8 &&
                              head.substr(8).starts_with(fmt::format(
                                  R"({{"__metadata__":{{"format":"pt","made_by":"{}"}})", kMadeBy));
                     }});
}

void check_picture_output(const std::filesystem::path& path, const SparseLayers& sparse) {
  require_sparse("--picture", sparse);
  make_writable_directory(std::filesystem::absolute(path).parent_path());
  check_output_file(path, {"--picture", "a picture of pages by longstride",
                           [](std::string_view head) { return head.starts_with(kPictureBegin); }});
}

}  // namespace longstride::cli
