// Helpers for tests of model files: a temporary directory, checks of error messages, small configs.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "base/error.h"
#include "base/json.h"

namespace longstride::testing {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "longstride-test-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = name;
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Runs `f`, which must throw Error whose message or hint contains each of `parts`.
inline void expect_error(const std::function<void()>& f, std::initializer_list<std::string> parts) {
  try {
    f();
  } catch (const Error& e) {
    const std::string text = std::string(e.what()) + "\n" + e.hint();
    for (const std::string& part : parts)
      EXPECT_NE(text.find(part), std::string::npos) << "\"" << part << "\" is not in: " << text;
    return;
  } catch (const std::exception& e) {
    ADD_FAILURE() << "not an Error: " << e.what();
    return;
  }
  ADD_FAILURE() << "nothing was thrown";
}

inline void write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
  if (!out) throw std::runtime_error("cannot write " + path.string());
}

// A small valid config.json with `changes` applied.
inline Json config_json(const char* model_type, const Json& changes = Json::object()) {
  Json json = {
      {"model_type", model_type},    {"hidden_size", 64},        {"num_hidden_layers", 4},
      {"num_attention_heads", 4},    {"num_key_value_heads", 2}, {"intermediate_size", 128},
      {"vocab_size", 100},           {"rms_norm_eps", 1e-6},     {"max_position_embeddings", 4096},
      {"tie_word_embeddings", false}};
  json.update(changes);
  return json;
}

// The bytes of a safetensors file with this header and data.
inline std::string safetensors_bytes(const std::string& header, const std::string& data) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>((header.size() >> (8 * i)) & 0xff));
  return bytes + header + data;
}

}  // namespace longstride::testing
