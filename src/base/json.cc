#include "base/json.h"

#include "base/error.h"
#include "base/files.h"
#include "base/json_depth.h"

namespace longstride {

Json parse_json(const std::string& text, const std::string& where) {
  check_json_depth(text, where);
  try {
    return Json::parse(text);
  } catch (const Json::exception& e) {
    throw Error(fmt::format("{}: not valid JSON: {}", where, e.what()),
                "the file is damaged or was cut short; restore it");
  }
}

Json read_json(const std::filesystem::path& path) {
  return parse_json(read_text(path), path.string());
}

std::string dump_json(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::string dump_json(const OrderedJson& json, int indent) {
  return json.dump(indent, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace longstride
