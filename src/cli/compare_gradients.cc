#include "cli/compare_gradients.h"

#include <cmath>

#include "base/error.h"

namespace longstride::cli {
namespace {

struct Sums {
  double aa = 0, ab = 0, bb = 0, difference = 0;
  void add(const std::vector<float>& a, const std::vector<float>& b) {
    LS_CHECK(a.size() == b.size(), "{} and {} elements", a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      const auto x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
      aa += x * x;
      ab += x * y;
      bb += y * y;
      difference += (x - y) * (x - y);
    }
  }
  OrderedJson json() const {
    return {{"relative_error", std::sqrt(difference / bb)}, {"cosine", ab / std::sqrt(aa * bb)}};
  }
};

// "model.layers.3.self_attn.q_proj.weight" -> "q_proj"; all norms are one group.
std::string group_of(const std::string& name) {
  if (name.find("norm") != std::string::npos) return "norm";
  const std::size_t end = name.rfind('.'), begin = name.rfind('.', end - 1);
  return name.substr(begin == std::string::npos ? 0 : begin + 1,
                     end - (begin == std::string::npos ? 0 : begin + 1));
}

const std::string& name_of(const ParameterSet& gradients, std::int64_t i) {
  return gradients.specs()[static_cast<std::size_t>(i)].name;
}

void fetch(const ParameterSet& gradients, std::int64_t i, std::vector<float>& values) {
  const View view = gradients.view(i);
  values.resize(static_cast<std::size_t>(view.elements()));
  gradients.device().copy_to_host(values.data(), view.data(), view.bytes());
}

}  // namespace

HostGradients fetch_gradients(const ParameterSet& gradients) {
  HostGradients fetched;
  for (std::int64_t i = 0; i < gradients.size(); ++i)
    if (gradients.view(i).present()) fetch(gradients, i, fetched[name_of(gradients, i)]);
  return fetched;
}

OrderedJson compare_gradients(const HostGradients& a, const ParameterSet& b) {
  std::map<std::string, Sums> groups;
  Sums all;
  std::vector<float> values;
  std::size_t compared = 0;
  for (std::int64_t i = 0; i < b.size(); ++i) {
    if (!b.view(i).present()) continue;
    const std::string& name = name_of(b, i);
    fetch(b, i, values);
    groups[group_of(name)].add(a.at(name), values);
    all.add(a.at(name), values);
    ++compared;
  }
  LS_CHECK(compared == a.size(), "{} of {} parameters", compared, a.size());
  OrderedJson json = {{"all", all.json()}};
  for (const auto& [name, sums] : groups) json[name] = sums.json();
  return json;
}

}  // namespace longstride::cli
