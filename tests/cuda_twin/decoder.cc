#include "tests/cuda_twin/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "tests/cuda_twin/handlers.h"
#include "tests/cuda_twin/warp.h"

namespace longstride::twin {
namespace {

constexpr std::uint32_t kDynamicAlignment = 1024;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

std::string_view trimmed(std::string_view s) {
  while (!s.empty() && is_space(s.front())) s.remove_prefix(1);
  while (!s.empty() && is_space(s.back())) s.remove_suffix(1);
  return s;
}

// At commas outside of braces and brackets.
std::vector<std::string> split(std::string_view s) {
  std::vector<std::string> parts;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= s.size(); ++i) {
    if (i == s.size() || (s[i] == ',' && depth == 0)) {
      if (const std::string_view part = trimmed(s.substr(begin, i - begin)); !part.empty())
        parts.emplace_back(part);
      begin = i + 1;
    } else if (s[i] == '{' || s[i] == '[') {
      ++depth;
    } else if (s[i] == '}' || s[i] == ']') {
      --depth;
    }
  }
  return parts;
}

std::vector<std::string> at_dots(std::string_view name) {
  std::vector<std::string> parts(1);
  for (const char c : name)
    if (c == '.')
      parts.emplace_back();
    else
      parts.back() += c;
  std::erase_if(parts, [](const std::string& p) { return p.empty(); });
  return parts;
}

std::uint32_t aligned(std::uint32_t n, std::uint32_t to) { return (n + to - 1) / to * to; }

// ".align 4 .b8 name[1024]" and the like: name, bytes, alignment.
struct Variable {
  std::string name;
  std::uint32_t bytes = 0, alignment = 1;
};
Variable parse_variable(std::string_view text) {
  Variable v;
  std::uint32_t element = 1;
  std::string copy(text);
  for (std::size_t i = 0; i < copy.size();) {
    while (i < copy.size() && is_space(copy[i])) ++i;
    std::size_t end = i;
    while (end < copy.size() && !is_space(copy[end])) ++end;
    const std::string word = copy.substr(i, end - i);
    i = end;
    if (word == ".align") {
      while (i < copy.size() && is_space(copy[i])) ++i;
      v.alignment = static_cast<std::uint32_t>(std::stoul(copy.substr(i)));
      while (i < copy.size() && !is_space(copy[i])) ++i;
    } else if (word.starts_with(".") && word.find_first_of("0123456789") != std::string::npos) {
      element = static_cast<std::uint32_t>(std::stoul(word.substr(2))) / 8;
      v.alignment = std::max(v.alignment, element);
    } else if (!word.starts_with(".") && !word.empty()) {
      const std::size_t bracket = word.find('[');
      v.name = word.substr(0, bracket);
      std::uint32_t count = 1;
      if (bracket != std::string::npos)
        count = word[bracket + 1] == ']'
                    ? 0
                    : static_cast<std::uint32_t>(std::stoul(word.substr(bracket + 1)));
      v.bytes = count * element;
    }
  }
  return v;
}

int special_named(const std::string& name) {
  if (name == "%laneid") return kLane;
  if (name == "%warpid") return kWarp;
  for (const auto& [prefix, first] : {std::pair{"%tid.", kThread},
                                      {"%ntid.", kThreads},
                                      {"%ctaid.", kBlock},
                                      {"%nctaid.", kBlocks}})
    if (name.starts_with(prefix) && name.size() == std::strlen(prefix) + 1 && name.back() >= 'x' &&
        name.back() <= 'z')
      return first + (name.back() - 'x');
  return -1;
}

class Decoder {
 public:
  Decoder(std::string_view text, const std::map<std::string, std::uint64_t>& globals)
      : text_(text), globals_(globals) {}

  Kernel decode() {
    const std::size_t parameters = text_.find('('), open = text_.find('{');
    kernel_.name = std::string(trimmed(text_.substr(6, std::min(parameters, open) - 6)));
    if (parameters < open) {
      const std::size_t end = text_.find("\n)", parameters);
      for (const std::string& p : split(text_.substr(parameters + 1, end - parameters - 1)))
        add_parameter(p);
      directives(text_.substr(end + 2, open - end - 2));
    } else {
      directives(text_.substr(0, open));
    }
    find_shared(text_.substr(open));
    body(text_.substr(open + 1, text_.size() - open - 2));
    for (const auto& [instruction, label] : branches_) {
      const auto found = labels_.find(label);
      if (found == labels_.end()) throw Fault(kernel_.name + ": no label " + label);
      kernel_.code[instruction].target = found->second;
    }
    Instruction end;
    end.control = Control::kReturn;
    kernel_.code.push_back(end);
    kernel_.lines.emplace_back("end");
    kernel_.register_bytes = aligned(next_register_, 64);
    return std::move(kernel_);
  }

 private:
  [[noreturn]] void unknown(std::string_view statement) const {
    throw Fault(fmt::format("{}: the twin does not know '{}'", kernel_.name, statement));
  }

  void add_parameter(std::string_view text) {
    const Variable v = parse_variable(text);
    kernel_.parameter_bytes = aligned(kernel_.parameter_bytes, v.alignment);
    symbols_[v.name] = kParameterWindow | kernel_.parameter_bytes;
    kernel_.parameters.push_back({kernel_.parameter_bytes, v.bytes});
    kernel_.parameter_bytes += v.bytes;
  }

  void directives(std::string_view text) {
    const std::size_t at = text.find(".maxntid");
    if (at == std::string_view::npos) return;
    std::uint32_t threads = 1;
    const std::size_t end = text.find('\n', at);
    for (const std::string& n : split(text.substr(at + 8, end - at - 8)))
      threads *= static_cast<std::uint32_t>(std::stoul(n));
    kernel_.most_threads = threads;
  }

  // Shared variables may be declared after their first use in the text: found beforehand.
  void find_shared(std::string_view text) {
    for (std::size_t at = text.find("\t.shared"); at != std::string_view::npos;
         at = text.find("\t.shared", at + 1)) {
      const std::size_t end = text.find(';', at);
      const Variable v = parse_variable(text.substr(at + 8, end - at - 8));
      kernel_.shared_bytes = aligned(kernel_.shared_bytes, v.alignment);
      symbols_[v.name] = kernel_.shared_bytes;
      kernel_.shared_bytes += v.bytes;
    }
    // Where dynamic memory begins.
    kernel_.shared_bytes =
        kernel_.shared_bytes == 0 ? 0 : aligned(kernel_.shared_bytes, kDynamicAlignment);
  }

  void body(std::string_view text) {
    std::size_t i = 0;
    while (i < text.size()) {
      if (is_space(text[i]) || text[i] == ';') {
        ++i;
      } else if (text.substr(i, 2) == "//") {
        i = std::min(text.find('\n', i), text.size());
      } else if (text[i] == '{') {
        scopes_.emplace_back();
        ++i;
      } else if (text[i] == '}') {
        scopes_.pop_back();
        ++i;
      } else {
        // A label, or a statement up to its semicolon.
        const std::size_t end = text.find(';', i), colon = text.find(':', i);
        const std::string_view label =
            text.substr(i, colon == std::string_view::npos ? 0 : colon - i);
        if (text[i] == '$' && colon < end) {
          labels_[std::string(label)] = static_cast<std::uint32_t>(kernel_.code.size());
          i = colon + 1;
          continue;
        }
        if (end == std::string_view::npos) unknown(text.substr(i, 80));
        statement(trimmed(text.substr(i, end - i)));
        i = end + 1;
      }
    }
  }

  Operand new_register(Width w) {
    const std::uint32_t bytes = bytes_of(w);
    next_register_ = aligned(next_register_, std::min(bytes, 64u));
    const Operand made{next_register_ & 0x3FFFFFFFu, w};
    next_register_ += bytes;
    return made;
  }

  void declare(std::string_view text) {
    const std::size_t gap = text.find_first_of(" \t");
    const Width width = width_of_type(std::string(text.substr(1, gap - 1)));
    for (const std::string& name : split(text.substr(gap))) {
      auto& scope = scopes_.empty() ? registers_ : scopes_.back();
      if (const std::size_t angle = name.find('<'); angle != std::string::npos) {
        const int count = std::stoi(name.substr(angle + 1));
        for (int n = 0; n < count; ++n)
          scope[fmt::format("{}{}", name.substr(0, angle), n)] = new_register(width);
      } else {
        scope[name] = new_register(width);
      }
    }
  }

  const Operand* find_register(const std::string& name) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
      if (const auto found = scope->find(name); found != scope->end()) return &found->second;
    const auto found = registers_.find(name);
    return found == registers_.end() ? nullptr : &found->second;
  }

  Operand constant(std::uint64_t value, Width width) {
    if (width == Width::k16) value &= 0xFFFF;
    if (width == Width::k32) value &= 0xFFFFFFFF;
    const auto [at, fresh] = constants_.try_emplace({value, width});
    if (fresh) {
      at->second = new_register(width);
      kernel_.constants.push_back({at->second, value});
    }
    return at->second;
  }

  std::uint64_t symbol(const std::string& text, bool& found) const {
    const std::size_t plus = text.find('+');
    const std::string name(trimmed(std::string_view(text).substr(0, plus)));
    const std::uint64_t offset = plus == std::string::npos ? 0 : std::stoull(text.substr(plus + 1));
    found = true;
    if (const auto s = symbols_.find(name); s != symbols_.end()) return s->second + offset;
    if (const auto g = globals_.find(name); g != globals_.end())
      return (g->second == kSharedWindow ? kernel_.shared_bytes : g->second) + offset;
    found = false;
    return 0;
  }

  Operand operand(std::string text, Width width) {
    if (const Operand* r = find_register(text); r != nullptr) return *r;
    if (text.starts_with("%")) {
      const int special = special_named(text);
      if (special < 0) unknown(text);
      Operand& at = kernel_.specials[static_cast<std::size_t>(special)];
      if (at.at == 0) at = new_register(Width::k32);
      return at;
    }
    if (text.starts_with("0f")) return constant(std::stoull(text.substr(2), nullptr, 16), width);
    if (text.starts_with("0d")) return constant(std::stoull(text.substr(2), nullptr, 16), width);
    if (text[0] == '-' || (text[0] >= '0' && text[0] <= '9')) {
      const bool negative = text[0] == '-';
      const std::uint64_t magnitude = std::stoull(text.substr(negative ? 1 : 0), nullptr, 0);
      const std::uint64_t value = negative ? std::uint64_t{0} - magnitude : magnitude;
      if (width == Width::kPredicate) return constant(value != 0 ? kAllLanes : 0, width);
      return constant(value, width);
    }
    bool found = false;
    const std::uint64_t value = symbol(text, found);
    if (!found) unknown(text);
    return constant(value, width);
  }

  // "[%rd1+16]": base and offset.
  Operand address(std::string_view text, std::int64_t& offset) {
    text = trimmed(text.substr(1, text.size() - 2));
    offset = 0;
    const std::size_t plus = text.find('+');
    const std::string base(trimmed(text.substr(0, plus)));
    if (const Operand* r = find_register(base); r != nullptr) {
      if (plus != std::string_view::npos) offset = std::stoll(std::string(text.substr(plus + 1)));
      return *r;
    }
    return operand(std::string(text), Width::k64);
  }

  static std::vector<std::string> elements(const std::string& text) {
    if (!text.starts_with("{")) return {text};
    return split(std::string_view(text).substr(1, text.size() - 2));
  }

  void statement(std::string_view text) {
    if (text.starts_with(".reg")) return declare(trimmed(text.substr(4)));
    if (text.starts_with(".")) {
      if (text.starts_with(".shared") || text.starts_with(".pragma") || text.starts_with(".loc"))
        return;
      unknown(text);
    }
    Instruction i;
    const std::string_view whole = text;
    if (text[0] == '@') {
      const std::size_t gap = text.find_first_of(" \t");
      i.guarded = true;
      i.unless = text[1] == '!';
      const std::string name(text.substr(i.unless ? 2 : 1, gap - (i.unless ? 2 : 1)));
      const Operand* guard = find_register(name);
      if (guard == nullptr) unknown(whole);
      i.guard = *guard;
      text = trimmed(text.substr(gap));
    }
    const std::size_t gap = std::min(text.find_first_of(" \t"), text.size());
    const std::vector<std::string> name = at_dots(text.substr(0, gap));
    const std::vector<std::string> arguments = split(text.substr(gap));
    if (!control(i, name, arguments) && !memory(i, name, arguments) && !pack(i, name, arguments) &&
        !together(i, name, arguments) && !plain(i, name, arguments))
      unknown(whole);
    kernel_.code.push_back(i);
    kernel_.lines.emplace_back(whole);
  }

  bool control(Instruction& i, const std::vector<std::string>& name,
               const std::vector<std::string>& arguments) {
    const std::string& op = name[0];
    if (op == "bra") {
      i.control = Control::kBranch;
      branches_.emplace_back(kernel_.code.size(), arguments.at(0));
      return true;
    }
    if (op == "ret" || op == "exit") {
      i.control = Control::kReturn;
      return true;
    }
    if ((op != "bar" && op != "barrier") || (name.size() > 1 && name[1] == "warp")) return false;
    i.control = Control::kBarrier;
    const bool counts = std::ranges::find(name, "red") != name.end();
    const bool arrives = std::ranges::find(name, "arrive") != name.end();
    i.mode = counts ? 2 : arrives ? 1 : 0;
    if (counts) {
      if (std::ranges::find(name, "popc") == name.end()) return false;
      i.results = 1;
      i.to[0] = operand(arguments.at(0), Width::k32);
      i.from[0] = operand(arguments.at(1), Width::k32);
      i.from[1] = operand(arguments.at(2), Width::kPredicate);
      i.sources = 2;
      return true;
    }
    for (const std::string& a : arguments) i.from.at(i.sources++) = operand(a, Width::k32);
    return i.sources > 0;
  }

  bool memory(Instruction& i, const std::vector<std::string>& name,
              const std::vector<std::string>& arguments) {
    if ((name[0] != "ld" && name[0] != "st") || arguments.size() != 2) return false;
    const bool stores = name[0] == "st";
    i.reads_or_writes = true;
    const std::vector<std::string> values = elements(arguments[stores ? 1 : 0]);
    i.run = memory_access_of(name, static_cast<int>(values.size()));
    i.from[i.sources++] = address(arguments[stores ? 0 : 1], i.offset);
    for (const std::string& v : values)
      if (stores)
        i.from.at(i.sources++) = operand(v, width_of_type(name.back()));
      else
        i.to.at(i.results++) = operand(v, width_of_type(name.back()));
    return i.run != nullptr;
  }

  // mov between a register and the parts of it.
  bool pack(Instruction& i, const std::vector<std::string>& name,
            const std::vector<std::string>& arguments) {
    if (name[0] != "mov" || arguments.size() != 2 ||
        (!arguments[0].starts_with("{") && !arguments[1].starts_with("{")))
      return false;
    const Width whole = width_of_type(name.back()),
                half = whole == Width::k64 ? Width::k32 : Width::k16;
    for (const std::string& part : elements(arguments[0]))
      i.to.at(i.results++) = operand(part, arguments[0].starts_with("{") ? half : whole);
    for (const std::string& part : elements(arguments[1]))
      i.from.at(i.sources++) = operand(part, arguments[1].starts_with("{") ? half : whole);
    if (i.results + i.sources != 3) return false;
    i.mode = half == Width::k32 ? 32 : 16;
    i.run = [](Warp& w, const Instruction& in, std::uint32_t lanes) {
      const std::uint64_t mask = in.mode == 32 ? 0xFFFFFFFF : 0xFFFF;
      for (int l = 0; l < kLanes; ++l) {
        if ((lanes >> l & 1) == 0) continue;
        if (in.results == 1) {
          w.set(in.to[0], l, w.value(in.from[0], l) | w.value(in.from[1], l) << in.mode);
        } else {
          const std::uint64_t v = w.value(in.from[0], l);
          w.set(in.to[0], l, v & mask);
          w.set(in.to[1], l, v >> in.mode & mask);
        }
      }
    };
    return true;
  }

  bool together(Instruction& i, const std::vector<std::string>& name,
                const std::vector<std::string>& arguments) {
    if (name[0] == "bar" || name[0] == "barrier") {
      i.control = Control::kConverged;
      i.together = operand(arguments.at(0), Width::k32);
      return true;
    }
    if (name[0] == "cvta") {
      // Every address of the twin is a generic one.
      i.to[i.results++] = operand(arguments.at(0), Width::k64);
      i.from[i.sources++] = operand(arguments.at(1), Width::k64);
      i.run = arithmetic_of({"mov", "b64"}).run;
      return true;
    }
    const Meaning m = warp_operation_of(name);
    if (m.run == nullptr) return false;
    i.run = m.run;
    std::vector<std::string> to, from;
    std::size_t first = 0;
    if (!m.results.empty()) {
      to = elements(arguments.at(0));
      if (const std::size_t bar = to[0].find('|'); bar != std::string::npos)
        to = {to[0].substr(0, bar), to[0].substr(bar + 1)};
      first = 1;
    }
    for (std::size_t a = first; a < arguments.size(); ++a)
      for (std::string& e : elements(arguments[a])) from.push_back(std::move(e));
    const bool needs_mask = name[0] == "shfl" || name[0] == "vote" || name[0] == "redux";
    const bool needs_all = name[0] == "mma" || name[0] == "ldmatrix";
    if (needs_mask || needs_all) i.control = Control::kConverged;
    if (needs_all) i.together = constant(kAllLanes, Width::k32);
    if (needs_mask) {
      i.together = operand(from.back(), Width::k32);
      from.pop_back();
    }
    if (name[0] == "vote") i.mode = name[2] == "ballot" ? 0 : name[2] == "any" ? 1 : 2;
    if (to.size() > m.results.size()) return false;
    for (const std::string& t : to)
      i.to.at(i.results) = operand(t, m.results[i.results]), ++i.results;
    for (const std::string& f : from) {
      const Width width = i.sources < m.sources.size() ? m.sources[i.sources] : Width::k32;
      i.from.at(i.sources++) = f.starts_with("[") ? address(f, i.offset) : operand(f, width);
    }
    return true;
  }

  bool plain(Instruction& i, const std::vector<std::string>& name,
             const std::vector<std::string>& arguments) {
    Meaning m = conversion_of(name);
    if (m.run == nullptr) m = arithmetic_of(name);
    if (m.run == nullptr || arguments.size() != m.results.size() + m.sources.size()) return false;
    i.run = m.run;
    for (const Width w : m.results)
      i.to.at(i.results) = operand(arguments[i.results], w), ++i.results;
    for (const Width w : m.sources) {
      const std::string& text = arguments[m.results.size() + i.sources];
      i.from.at(i.sources++) = operand(text, w);
    }
    return true;
  }

  std::string_view text_;
  const std::map<std::string, std::uint64_t>& globals_;
  Kernel kernel_;
  std::uint32_t next_register_ = 64;  // 0 is no register
  std::map<std::string, Operand> registers_;
  std::vector<std::map<std::string, Operand>> scopes_;
  std::map<std::pair<std::uint64_t, Width>, Operand> constants_;
  std::map<std::string, std::uint64_t> symbols_;
  std::map<std::string, std::uint32_t> labels_;
  std::vector<std::pair<std::size_t, std::string>> branches_;
};

}  // namespace

Kernel decode_kernel(std::string_view text, const std::map<std::string, std::uint64_t>& globals) {
  return Decoder(text, globals).decode();
}

}  // namespace longstride::twin
