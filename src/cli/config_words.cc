#include "cli/config_words.h"

#include <fmt/format.h>

#include "base/error.h"

namespace longstride::cli {

ConfigWords sort_words(const std::vector<std::string>& extras, const std::string& command) {
  ConfigWords words;
  for (std::size_t i = 0; i < extras.size(); ++i) {
    const std::string& word = extras[i];
    if (!word.starts_with("-") && words.config.empty()) {
      words.config = word;
      continue;
    }
    if (!word.starts_with("--") || word.find('.') == std::string::npos)
      throw Error(fmt::format("unexpected argument '{}'", word),
                  fmt::format("settings are given as --section.key=value; longstride {} --help "
                              "lists the options",
                              command));
    std::string setting = word.substr(2);
    if (setting.find('=') == std::string::npos) {
      if (i + 1 == extras.size())
        throw Error(fmt::format("'{}' has no value", word), fmt::format("write {}=VALUE", word));
      setting += "=" + extras[++i];
    }
    words.overrides.push_back(setting);
  }
  return words;
}

}  // namespace longstride::cli
