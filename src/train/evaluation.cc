#include "train/evaluation.h"

#include <bit>

#include "base/error.h"

namespace longstride {

TargetSums& TargetSums::operator+=(const TargetSums& more) {
  targets += more.targets;
  correct += more.correct;
  loss += more.loss;
  return *this;
}

void Evaluation::add(const Sample& sample, std::span<const float> losses,
                     std::span<const char> correct) {
  LS_CHECK(std::ssize(losses) == sample.size() && losses.size() == correct.size(),
           "{} losses of {} tokens", losses.size(), sample.size());
  std::size_t next = 0;
  std::int64_t start = 0;
  for (std::size_t t = 0; t < losses.size(); ++t) {
    const auto at = static_cast<std::int64_t>(t);
    if (next < sample.document_starts.size() && sample.document_starts[next] == at) {
      start = at;
      documents_.emplace_back();
      ++next;
    }
    DocumentResult& document = documents_.back();
    ++document.tokens;
    if (sample.targets[t] < 0) continue;
    const TargetSums one{1, correct[t] != 0 ? 1 : 0, static_cast<double>(losses[t])};
    const auto seen = static_cast<std::uint64_t>(at - start + 1);
    const auto position = static_cast<std::size_t>(std::bit_width(seen) - 1);
    if (by_position_.size() <= position) by_position_.resize(position + 1);
    by_position_[position] += one;
    document += one;
    all_ += one;
  }
}

OrderedJson to_json(const Evaluation& evaluation) {
  const auto figures = [](const TargetSums& sums) {
    return OrderedJson{
        {"loss", sums.mean_loss()}, {"accuracy", sums.accuracy()}, {"targets", sums.targets}};
  };
  OrderedJson json = figures(evaluation.all());
  json["by_position"] = OrderedJson::array();
  for (std::size_t k = 0; k < evaluation.by_position().size(); ++k) {
    const TargetSums& sums = evaluation.by_position()[k];
    if (sums.targets == 0) continue;
    OrderedJson entry = {{"from", std::int64_t{1} << k}, {"to", (std::int64_t{2} << k) - 1}};
    entry.update(figures(sums));
    json["by_position"].push_back(std::move(entry));
  }
  return json;
}

}  // namespace longstride
