#include "plan/machine_rates.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

#include "base/error.h"
#include "tensor/dtype_words.h"

namespace longstride {
namespace {

enum class Range : std::uint8_t { kPositive, kNotNegative };

// One list of figures serves both directions: calls f(name, member, range) for each. A dot in a
// name leads into an object.
template <class Rates, class F>
void number_fields(Rates& m, const F& f) {
  constexpr Range kPositive = Range::kPositive, kNotNegative = Range::kNotNegative;
  f("device_bytes", m.device_bytes, kPositive);
  f("host_bytes", m.host_bytes, kNotNegative);
  f("disk_bytes", m.disk_bytes, kNotNegative);
  f("peak_flops", m.peak_flops, kPositive);
  f("products.peak", m.products.peak, kPositive);
  f("products.half_tiles", m.products.half_tiles, kNotNegative);
  f("products.half_inner", m.products.half_inner, kNotNegative);
  f("loss_head", m.loss_head, kPositive);
  f("attention.earlier_forward", m.attention.earlier_forward, kPositive);
  f("attention.earlier_backward", m.attention.earlier_backward, kPositive);
  f("attention.half_keys_forward", m.attention.half_keys_forward, kNotNegative);
  f("attention.half_keys_backward", m.attention.half_keys_backward, kNotNegative);
  f("attention.own_forward", m.attention.own_forward, kPositive);
  f("attention.own_backward", m.attention.own_backward, kPositive);
  f("attention.half_own", m.attention.half_own, kNotNegative);
  f("attention.window_forward", m.attention.window_forward, kPositive);
  f("attention.window_backward", m.attention.window_backward, kPositive);
  f("attention.selected_forward", m.attention.selected_forward, kPositive);
  f("attention.selected_backward", m.attention.selected_backward, kPositive);
  f("attention.exact_backward", m.attention.exact_backward, kPositive);
  f("attention.exact_selected", m.attention.exact_selected, kPositive);
  f("attention.small_heads_forward", m.attention.small_heads_forward, kPositive);
  f("attention.small_heads_backward", m.attention.small_heads_backward, kPositive);
  f("attention.half_tiles", m.attention.half_tiles, kNotNegative);
  f("page_scores", m.page_scores, kPositive);
  f("memory", m.memory, kPositive);
  f("gradient_sums", m.gradient_sums, kPositive);
  f("update", m.update, kPositive);
  f("task_overhead", m.task_overhead, kNotNegative);
  f("copies.to_host", m.copies.to_host, kPositive);
  f("copies.from_host", m.copies.from_host, kPositive);
  f("copies.both", m.copies.both, kPositive);
  f("copies.beside", m.copies.beside, kNotNegative);
  f("copies.disk_read", m.copies.disk_read, kPositive);
  f("copies.disk_write", m.copies.disk_write, kPositive);
  f("host_sleep", m.host_sleep, kNotNegative);
}

std::string pointer(std::string_view name) {
  std::string path = "/" + std::string(name);
  std::replace(path.begin(), path.end(), '.', '/');
  return path;
}

// Reads fields by name, and remembers which ones there are.
class Reader {
 public:
  Reader(const Json& json, const std::string& where) : json_(json), where_(where) {
    if (!json.is_object()) throw Error(where + ": the rates of a machine are not an object", kHint);
  }

  const Json& find(std::string_view name) {
    known_.insert(std::string(name));
    const Json::json_pointer at(pointer(name));
    if (!json_.contains(at)) throw wrong(name, "is missing");
    return json_.at(at);
  }

  void read(std::string_view name, std::string& value) {
    const Json& found = find(name);
    if (!found.is_string()) throw wrong(name, "is not a string");
    value = found.get<std::string>();
  }
  void read(std::string_view name, bool& value) {
    const Json& found = find(name);
    if (!found.is_boolean()) throw wrong(name, "is not true or false");
    value = found.get<bool>();
  }
  void read(std::string_view name, double& value, Range range) {
    const Json& found = find(name);
    if (!found.is_number()) throw wrong(name, "is not a number");
    value = found.get<double>();
    check(name, value, range);
  }
  void read(std::string_view name, std::int64_t& value, Range range) {
    const Json& found = find(name);
    const bool fits = found.is_number_integer() &&
                      (!found.is_number_unsigned() || found.get<std::uint64_t>() >> 63 == 0);
    if (!fits) throw wrong(name, "is not a whole number");
    value = found.get<std::int64_t>();
    check(name, static_cast<double>(value), range);
  }

  // A misspelt field would otherwise go unnoticed.
  void refuse_unknown() const { refuse_unknown(json_, ""); }

  Error wrong(std::string_view name, std::string_view what) const {
    return Error(fmt::format("{}: {} {}", where_, name, what), kHint);
  }

 private:
  static constexpr const char* kHint = "begin with the rates of a known machine, and change those";

  void check(std::string_view name, double value, Range range) const {
    if (!std::isfinite(value) || value < 0 || (range == Range::kPositive && value == 0))
      throw wrong(name, fmt::format("is {}, and must be {}", value,
                                    range == Range::kPositive ? "above 0" : "at least 0"));
  }

  void refuse_unknown(const Json& object, const std::string& prefix) const {
    for (const auto& [key, value] : object.items()) {
      const std::string name = prefix + key;
      if (known_.contains(name)) continue;
      const std::string inside = name + ".";
      const auto first = known_.lower_bound(inside);
      if (!value.is_object() || first == known_.end() || !first->starts_with(inside))
        throw wrong(name, "is unknown");
      refuse_unknown(value, inside);
    }
  }

  const Json& json_;
  const std::string& where_;
  std::set<std::string> known_;
};

}  // namespace

double ProductRates::rate(double rows, double inner, double outer) const {
  const double tiles = std::max(1.0, rows / 128) * std::max(1.0, outer / 128);
  return peak * (tiles / (tiles + half_tiles)) * (inner / (inner + half_inner));
}

OrderedJson to_json(const MachineRates& rates) {
  OrderedJson json = {{"name", rates.name},
                      {"measured", rates.measured},
                      {"source", rates.source},
                      {"compute", word_of(rates.compute)}};
  number_fields(rates, [&](std::string_view name, const auto& value, Range) {
    json[OrderedJson::json_pointer(pointer(name))] = value;
  });
  return json;
}

MachineRates machine_rates_from_json(const Json& json, const std::string& where) {
  Reader reader(json, where);
  MachineRates rates;
  std::string compute;
  reader.read("name", rates.name);
  reader.read("measured", rates.measured);
  reader.read("source", rates.source);
  reader.read("compute", compute);
  const std::optional<DType> type = dtype_of_word(compute);
  if (!type) throw reader.wrong("compute", fmt::format("is '{}', not a type", compute));
  rates.compute = *type;
  number_fields(rates, [&](std::string_view name, auto& value, Range range) {
    reader.read(name, value, range);
  });
  reader.refuse_unknown();
  return rates;
}

MachineRates read_machine_rates(const std::filesystem::path& file) {
  return machine_rates_from_json(read_json(file), file.string());
}

}  // namespace longstride
