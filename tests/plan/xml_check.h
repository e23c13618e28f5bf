// Whether text is well-formed XML, as far as our pictures use it: one root, balanced tags, quoted
// attributes, escaped text.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace longstride {

// "" or what is wrong.
class XmlCheck {
 public:
  static std::string check(std::string_view text) {
    XmlCheck check(text);
    check.run();
    return check.wrong_;
  }

 private:
  explicit XmlCheck(std::string_view text) : rest_(text) {}

  void run() {
    while (!rest_.empty() && wrong_.empty()) {
      const std::string_view text = take_until('<');
      check_text(text);
      if (open_.empty() && text.find_first_not_of(" \n") != text.npos) fail("text outside");
      if (!rest_.empty()) tag();
    }
    if (!open_.empty()) fail(open_.back() + " is not closed");
    if (roots_ != 1) fail("not one root");
  }

  void tag() {
    rest_.remove_prefix(1);
    const bool closes = !rest_.empty() && rest_[0] == '/';
    if (closes) rest_.remove_prefix(1);
    const std::string name(rest_.substr(0, rest_.find_first_of(" />\n")));
    if (name.empty() || name.find_first_of("<\"&=") != name.npos) return fail("no name of a tag");
    rest_.remove_prefix(name.size());
    if (closes) {
      if (open_.empty() || open_.back() != name) return fail(name + " closes another tag");
      if (rest_.empty() || rest_[0] != '>') return fail(name + " does not end");
      open_.pop_back();
    } else {
      roots_ += open_.empty();
      attributes(name);
    }
    if (wrong_.empty()) rest_.remove_prefix(1);
  }

  // Up to the '>'.
  void attributes(const std::string& tag) {
    std::vector<std::string> seen;
    for (;;) {
      const std::size_t skipped = std::min(rest_.find_first_not_of(" \n"), rest_.size());
      rest_.remove_prefix(skipped);
      if (rest_.empty()) return fail(tag + " does not end");
      if (rest_.starts_with("/>")) return rest_.remove_prefix(1);
      if (rest_[0] == '>') return open_.push_back(tag);
      const std::string name(take_until('='));
      if (skipped == 0 || name.find_first_of(" <>\"&/") != name.npos)
        return fail("an attribute of " + tag);
      for (const std::string& other : seen)
        if (other == name) return fail(name + " is twice in " + tag);
      seen.push_back(name);
      if (!rest_.starts_with("=\"")) return fail(name + " is not quoted");
      rest_.remove_prefix(2);
      check_text(take_until('"'));
      if (rest_.empty()) return fail(name + " does not end");
      rest_.remove_prefix(1);
    }
  }

  void check_text(std::string_view text) {
    for (std::size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      if (c == '<' || c == '>') return fail("a tag inside of text");
      if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') return fail("control");
      if (c != '&') continue;
      bool known = false;
      for (const char* entity : {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"})
        known = known || text.substr(i).starts_with(entity);
      if (!known) return fail("an ampersand");
    }
  }

  std::string_view take_until(char c) {
    const std::string_view text = rest_.substr(0, rest_.find(c));
    rest_.remove_prefix(text.size());
    return text;
  }
  void fail(const std::string& why) {
    if (wrong_.empty()) wrong_ = why;
  }

  std::string_view rest_;
  std::vector<std::string> open_;
  int roots_ = 0;
  std::string wrong_;
};

}  // namespace longstride
