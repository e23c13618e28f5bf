#include "tests/cuda_twin/module.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <regex>
#include <sstream>

#include "tests/cuda_twin/decoder.h"
#include "tests/cuda_twin/memory.h"
#include "tests/cuda_twin/warp.h"

namespace longstride::twin {
namespace {

// "_GLOBAL__N__fdde60d8_15_sparse_codes_cu_2ba2d826": the hashes depend on how a file is compiled.
std::string without_hashes(const std::string& name) {
  static const std::regex hashes("_GLOBAL__N__[0-9a-f]{8}_([0-9]+_[A-Za-z0-9_]*?_cu)_[0-9a-f]{8}");
  return std::regex_replace(name, hashes, "_GLOBAL__N__$1");
}

struct Module {
  std::string text;
  std::map<std::string, std::uint64_t> globals;
};

struct Known {
  const Module* module = nullptr;
  std::size_t begin = 0, end = 0;
  std::unique_ptr<Kernel> decoded;
};

// ".global .align 4 .b8 name[8] = {1, 2};"
void add_variable(Module& m, const std::string& line) {
  const std::size_t equals = line.find('='), bracket = line.find('[');
  std::istringstream words(line.substr(0, std::min(bracket, equals)));
  std::string word, name, type;
  while (words >> word) {
    if (word.starts_with(".b") || word.starts_with(".u") || word.starts_with(".f") ||
        word.starts_with(".s"))
      type = word;
    else if (!word.starts_with("."))
      name = word;
  }
  std::erase(name, ';');
  if (line.find(".shared") != std::string::npos) {
    m.globals[name] = kSharedWindow;  // dynamic shared memory
    return;
  }
  if (type != ".b8" && bracket != std::string::npos) throw Fault("the twin reads bytes: " + line);
  const std::size_t bytes =
      bracket == std::string::npos ? 8 : std::stoull(line.substr(bracket + 1));
  auto* const data = static_cast<std::byte*>(allocate_device(bytes));
  std::memset(data, 0, bytes);
  if (equals != std::string::npos) {
    std::string list = line.substr(line.find('{', equals) + 1);
    for (char& c : list)
      if (c == ',' || c == '}' || c == ';') c = ' ';
    std::istringstream values(list);
    for (std::size_t i = 0; values >> word; ++i)
      data[i] = static_cast<std::byte>(std::stoi(word, nullptr, 0));
  }
  m.globals[name] = reinterpret_cast<std::uint64_t>(data);
}

class Modules {
 public:
  Modules() {
    const char* named = std::getenv("LONGSTRIDE_TWIN_KERNELS");
    const std::string folder = named != nullptr ? named : LS_TWIN_KERNELS;
    for (const auto& file : std::filesystem::recursive_directory_iterator(folder))
      if (file.path().extension() == ".ptx") read(file.path());
  }

  const Kernel& find(const std::string& name) {
    const auto found = kernels_.find(without_hashes(name));
    if (found == kernels_.end()) throw Fault("no PTX has a kernel " + name);
    Known& k = found->second;
    if (!k.decoded)
      k.decoded = std::make_unique<Kernel>(decode_kernel(
          std::string_view(k.module->text).substr(k.begin, k.end - k.begin), k.module->globals));
    return *k.decoded;
  }

 private:
  void read(const std::filesystem::path& path) {
    std::ifstream in(path);
    std::ostringstream all;
    all << in.rdbuf();
    Module& m = *modules_.emplace_back(std::make_unique<Module>());
    m.text = std::move(all).str();
    for (std::size_t line = 0; line < m.text.size();) {
      const std::size_t end = std::min(m.text.find('\n', line), m.text.size());
      const std::string_view text = std::string_view(m.text).substr(line, end - line);
      const std::size_t entry = text.find(".entry ");
      if (entry != std::string_view::npos && text[0] == '.') {
        const std::size_t close = m.text.find("\n}", end);
        const std::size_t begin = line + entry;
        std::string name(text.substr(entry + 7));
        name.resize(name.find_first_of("( \t\r") == std::string::npos
                        ? name.size()
                        : name.find_first_of("( \t\r"));
        Known& k = kernels_[without_hashes(name)];
        k.module = &m;
        k.begin = begin;
        k.end = close + 2;
        line = close + 2;
        continue;
      }
      if (text.starts_with(".global") || text.starts_with(".const") ||
          text.starts_with(".visible .global") || text.starts_with(".extern .shared"))
        add_variable(m, std::string(text));
      line = end + 1;
    }
  }

  std::vector<std::unique_ptr<Module>> modules_;
  std::map<std::string, Known> kernels_;
};

}  // namespace

const Kernel& kernel_named(const std::string& name) {
  static Modules* const modules = new Modules;
  return modules->find(name);
}

}  // namespace longstride::twin
