#include "model/config_fields.h"

#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"

namespace longstride {

Fields::Fields(const Json& object, std::string where, std::string prefix)
    : object_(&object), where_(std::move(where)), prefix_(std::move(prefix)) {
  if (object.is_object()) return;
  const std::string what = prefix_.empty() ? "the file" : prefix_.substr(0, prefix_.size() - 1);
  throw Error(fmt::format("{}: {} must hold a JSON object, not {}", where_, what, shown(object)),
              "compare with the config.json of the original model");
}

const Json* Fields::find(std::string_view key) const {
  const auto it = object_->find(key);
  return it == object_->end() || it->is_null() ? nullptr : &*it;
}

void Fields::fail(std::string_view key, std::string_view problem, std::string hint) const {
  throw Error(fmt::format("{}: {}{} {}", where_, prefix_, key, problem), std::move(hint));
}

const Json& Fields::value(std::string_view key) const {
  const Json* v = find(key);
  if (v == nullptr) fail(key, "is missing", "compare with the config.json of the original model");
  return *v;
}

std::int64_t Fields::integer(std::string_view key, std::int64_t least, std::int64_t most) const {
  const Json& v = value(key);
  if (!v.is_number_integer()) fail(key, fmt::format("must be a whole number, not {}", shown(v)));
  const bool too_large =
      v.is_number_unsigned() &&
      v.get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()};
  if (too_large || v.get<std::int64_t>() > most)
    fail(key, fmt::format("is {}; it must be at most {}", shown(v), most));
  if (v.get<std::int64_t>() < least)
    fail(key, fmt::format("is {}; it must be at least {}", shown(v), least));
  return v.get<std::int64_t>();
}

std::int64_t Fields::integer_or(std::string_view key, std::int64_t fallback, std::int64_t least,
                                std::int64_t most) const {
  return has(key) ? integer(key, least, most) : fallback;
}

double Fields::number(std::string_view key) const {
  const Json& v = value(key);
  if (!v.is_number()) fail(key, fmt::format("must be a number, not {}", shown(v)));
  const double x = v.get<double>();
  if (!std::isfinite(x)) fail(key, "must be finite");
  return x;
}

double Fields::number_or(std::string_view key, double fallback) const {
  return has(key) ? number(key) : fallback;
}

double Fields::number_above(std::string_view key, double bound) const {
  const double x = number(key);
  if (!(x > bound)) fail(key, fmt::format("is {}; it must be above {}", x, bound));
  return x;
}

double Fields::number_above_or(std::string_view key, double fallback, double bound) const {
  return has(key) ? number_above(key, bound) : fallback;
}

bool Fields::boolean_or(std::string_view key, bool fallback) const {
  const Json* v = find(key);
  if (v == nullptr) return fallback;
  if (!v->is_boolean()) fail(key, fmt::format("must be true or false, not {}", shown(*v)));
  return v->get<bool>();
}

std::string Fields::text(std::string_view key) const {
  const Json& v = value(key);
  if (!v.is_string()) fail(key, fmt::format("must be a text, not {}", shown(v)));
  return v.get<std::string>();
}

std::string Fields::text_or(std::string_view key, std::string fallback) const {
  return has(key) ? text(key) : std::move(fallback);
}

std::string shown(const Json& value) {
  constexpr std::size_t kMost = 60;
  std::string s = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (s.size() > kMost) s.replace(kMost, std::string::npos, "...");
  return s;
}

}  // namespace longstride
