// Typed access to the fields of a JSON object, with errors that name the file and the field. Used
// only by the config's parser. A field that is null counts as absent.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"

namespace longstride {

class Fields {
 public:
  // Throws Error unless `object` is a JSON object. `prefix` goes before field names
  // ("rope_scaling.").
  Fields(const Json& object, std::string where, std::string prefix = "");

  bool has(std::string_view key) const { return find(key) != nullptr; }
  // True if the key exists, even if it is null.
  bool mentions(std::string_view key) const { return object_->contains(key); }

  // Whole numbers in [least, most]; the second form returns `fallback` if the field is absent.
  std::int64_t integer(std::string_view key, std::int64_t least, std::int64_t most) const;
  std::int64_t integer_or(std::string_view key, std::int64_t fallback, std::int64_t least,
                          std::int64_t most) const;
  // Finite numbers.
  double number(std::string_view key) const;
  double number_or(std::string_view key, double fallback) const;
  // A number above `bound`.
  double number_above(std::string_view key, double bound) const;
  double number_above_or(std::string_view key, double fallback, double bound) const;
  bool boolean_or(std::string_view key, bool fallback) const;
  std::string text(std::string_view key) const;
  std::string text_or(std::string_view key, std::string fallback) const;
  // The value of a field that is present.
  const Json& value(std::string_view key) const;

  const Json& object() const { return *object_; }
  const std::string& where() const { return where_; }
  const std::string& prefix() const { return prefix_; }

  // Throws Error: "WHERE: KEY PROBLEM".
  [[noreturn]] void fail(std::string_view key, std::string_view problem,
                         std::string hint = "") const;

 private:
  const Json* find(std::string_view key) const;
  const Json* object_;
  std::string where_, prefix_;
};

// The value as JSON, shortened for messages.
std::string shown(const Json& value);

}  // namespace longstride
