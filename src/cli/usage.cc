#include "cli/usage.h"

#include <fmt/format.h>

#include <cmath>
#include <sstream>
#include <string>

#include "base/log.h"
#include "cli/output.h"

namespace longstride::cli {
namespace {

// The innermost subcommand that was recognized: "longstride bench step".
std::string command_of(const CLI::App& app) {
  std::string words = app.get_name();
  for (const CLI::App* at = &app; !at->get_subcommands().empty();) {
    at = at->get_subcommands().front();
    words += " " + at->get_name();
  }
  return words;
}

// CLI11 prints the largest double with all of its 309 digits.
std::string shortened(std::string message) {
  const std::size_t range = message.find(" not in range 0.000000 to 1797");
  if (range != std::string::npos) message.replace(range, std::string::npos, " is too small");
  return message;
}

}  // namespace

int report_usage(const CLI::App& app, const CLI::ParseError& e) {
  if (e.get_exit_code() == 0) {
    std::ostringstream out, err;
    app.exit(e, out, err);
    return print_output(out.str());
  }
  log_line("error: ", shortened(e.what()));
  log_line("  hint: ", fmt::format("{} --help says what it takes", command_of(app)));
  return 2;
}

CLI::Validator not_empty() {
  return {
      [](const std::string& text) { return std::string(text.empty() ? "the name is empty" : ""); },
      ""};
}

CLI::Validator finite_number() {
  return {[](const std::string& text) -> std::string {
            double value = 0;
            if (CLI::detail::lexical_cast(text, value) && std::isfinite(value)) return "";
            return fmt::format("{} is no finite number", text);
          },
          "FINITE"};
}

}  // namespace longstride::cli
