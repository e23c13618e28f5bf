// A temporary directory, removed at the end of the test; and writers of raw files.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"

namespace longstride {

class TempDirectory {
 public:
  TempDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "longstride-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
    path_ = name;
  }
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;
  ~TempDirectory() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }

  template <class T>
  std::filesystem::path write(const std::string& name, const std::vector<T>& values) const {
    const std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream out(file, std::ios::binary);
    out.write(reinterpret_cast<const char*>(values.data()),
              static_cast<std::streamsize>(values.size() * sizeof(T)));
    return file;
  }
  std::filesystem::path write_text(const std::string& name, const std::string& text) const {
    return write(name, std::vector<char>(text.begin(), text.end()));
  }

 private:
  std::filesystem::path path_;
};

// Text of the Error that f throws, message and hint in two lines; "" if none.
template <class F>
std::string error_of(const F& f) {
  try {
    f();
  } catch (const Error& error) {
    return std::string(error.what()) + "\n" + error.hint();
  }
  return "";
}

// True if the text contains all the parts.
inline ::testing::AssertionResult says(const std::string& text,
                                       const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    if (text.find(part) == std::string::npos)
      return ::testing::AssertionFailure() << "no '" << part << "' in: " << text;
  return ::testing::AssertionSuccess();
}

}  // namespace longstride
