#include "core/config/dotted_keys.hpp"

#include <algorithm>

namespace penstock {

namespace {

// Reads a text once. It skips strings and comments, because their dots do not belong to a key.
class KeyScanner {
 public:
  KeyScanner(std::string_view text, const std::string& file) : rest_(text), file_(file) {
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
    if (rest_.starts_with(kByteOrderMark)) rest_.remove_prefix(kByteOrderMark.size());
  }

  Status scan() {
    while (!rest_.empty()) {
      const char c = rest_.front();
      if (c == '#') {
        skip_comment();
        n_dots_ = 0;
      } else if (c == '"' || c == '\'') {
        skip_string(c);
      } else if (c == '.') {
        if (++n_dots_ >= kMostNesting) return too_deep();
        step(1);
      } else {
        // These characters end a key or a value. White space does not, because it may be around
        // dots.
        if (std::string_view("=,[]{}\n").find(c) != std::string_view::npos) n_dots_ = 0;
        step(1);
      }
    }
    return {};
  }

 private:
  Status too_deep() const {
    return invalid_argument("{}: a key of more than {} dotted parts, expected {} at most",
                            Location{file_, line_, column_}.text(), kMostNesting, kMostNesting);
  }

  // A column counts characters, so continuation bytes of UTF-8 do not count.
  void step(size_t n_bytes) {
    for (const char c : rest_.substr(0, n_bytes)) {
      if (c == '\n') {
        ++line_;
        column_ = 1;
      } else if ((static_cast<unsigned char>(c) & 0xC0) != 0x80) {
        ++column_;
      }
    }
    rest_.remove_prefix(n_bytes);
  }

  void skip_comment() { step(std::min(rest_.find('\n'), rest_.size())); }

  void skip_string(char quote) {
    const std::string three(3, quote);
    const bool multi_line = rest_.starts_with(three);
    step(multi_line ? 3 : 1);
    while (!rest_.empty()) {
      const char c = rest_.front();
      if (c == '\\' && quote == '"') {
        step(std::min<size_t>(2, rest_.size()));
      } else if (multi_line && rest_.starts_with(three)) {
        step(3);
        // At most two quotes may stand before the three quotes that end the string.
        for (int i = 0; i < 2 && !rest_.empty() && rest_.front() == quote; ++i) step(1);
        return;
      } else if (!multi_line && (c == quote || c == '\n')) {
        if (c == quote) step(1);
        return;  // the parser stops at an end of line in a string
      } else {
        step(1);
      }
    }
  }

  std::string_view rest_;
  const std::string& file_;
  uint32_t line_ = 1, column_ = 1;
  size_t n_dots_ = 0;
};

}  // namespace

Status check_dotted_keys(std::string_view text, const std::string& file) {
  return KeyScanner(text, file).scan();
}

}  // namespace penstock
