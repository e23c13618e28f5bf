// JSON through nlohmann-json, with errors that name the file.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace longstride {

using Json = nlohmann::json;
// Keeps keys in the order they were added: for files that people read.
using OrderedJson = nlohmann::ordered_json;

// Throws Error if the file is missing, unreadable or not JSON.
Json read_json(const std::filesystem::path& path);
Json parse_json(const std::string& text, const std::string& where);

// As text, on one line (-1) or with `indent` spaces per level. Never throws because of a string's
// content: bytes that are not UTF-8, which paths may contain, become U+FFFD.
std::string dump_json(const Json& json, int indent = -1);
std::string dump_json(const OrderedJson& json, int indent = -1);

}  // namespace longstride
