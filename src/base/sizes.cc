#include "base/sizes.h"

#include <cctype>
#include <charconv>
#include <cmath>

#include "base/error.h"

namespace longstride {
namespace {

// The factor of a unit such as "", "K", "GiB" or "MB"; 0 for anything else.
double factor_of(std::string_view unit) {
  std::string u;
  for (char c : unit) u += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  if (u.empty() || u == "B") return 1;
  static constexpr std::string_view kLetters = "KMGT";
  const auto power = kLetters.find(u[0]);
  if (power == std::string_view::npos) return 0;
  const std::string_view rest = std::string_view(u).substr(1);
  const double base = rest == "B" ? 1000.0 : 1024.0;
  if (!rest.empty() && rest != "B" && rest != "IB") return 0;
  return std::pow(base, static_cast<double>(power + 1));
}

}  // namespace

std::int64_t parse_size(std::string_view text, std::string_view what) {
  const auto bad = [&](std::string_view why) {
    return Error(fmt::format("{}: '{}' is not a size: {}", what, text, why),
                 "write a number with an optional unit: 4096, 128K, 1M, 1.5GiB");
  };
  std::size_t digits = 0;
  while (digits < text.size() &&
         (std::isdigit(static_cast<unsigned char>(text[digits])) || text[digits] == '.'))
    ++digits;
  if (digits == 0) throw bad("it does not start with a number");
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + digits, number);
  if (error != std::errc() || end != text.data() + digits) throw bad("the number is malformed");
  std::string_view unit = text.substr(digits);
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  const double factor = factor_of(unit);
  if (factor == 0) throw bad(fmt::format("unknown unit '{}'", unit));
  // Parses plain integers as such, because a double would lose digits.
  std::int64_t whole = 0;
  if (text.substr(0, digits).find('.') == std::string_view::npos) {
    const auto [whole_end, whole_error] = std::from_chars(text.data(), text.data() + digits, whole);
    if (whole_error != std::errc() || whole_end != text.data() + digits)
      throw bad("it is too large");
    std::int64_t result = 0;
    if (__builtin_mul_overflow(whole, static_cast<std::int64_t>(factor), &result))
      throw bad("it is too large");
    return result;
  }
  const double value = number * factor;
  if (!(value < 9.2e18)) throw bad("it is too large");
  // 1.1K has no exact value and is rounded; without a unit a fraction makes no sense.
  if (factor == 1 && value != std::floor(value)) throw bad("a fraction needs a unit");
  return static_cast<std::int64_t>(std::llround(value));
}

std::string format_bytes(double bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  while (std::abs(bytes) >= 1024 && unit < 4) bytes /= 1024, ++unit;
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.2f} {}", bytes, kUnits[unit]);
}

std::string format_count(std::int64_t count) {
  static constexpr const char* kUnits[] = {"", "K", "M", "G", "T"};
  int unit = 0;
  while (count != 0 && count % 1024 == 0 && unit < 4) count /= 1024, ++unit;
  return fmt::format("{}{}", count, kUnits[unit]);
}

}  // namespace longstride
