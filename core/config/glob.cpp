#include "core/config/glob.hpp"

namespace penstock {

namespace {

constexpr size_t kNone = std::string_view::npos;

// The index behind the set that opens at `at`, or kNone if the set never closes. A ] in the first
// place belongs to the set.
size_t end_of_set(std::string_view pattern, size_t at) {
  size_t i = at + 1;
  if (i < pattern.size() && pattern[i] == '!') ++i;
  const size_t close = pattern.find(']', i + 1);
  return i >= pattern.size() || close == kNone ? kNone : close + 1;
}

bool set_holds(std::string_view set, char c) {
  const bool inverted = !set.empty() && set.front() == '!';
  if (inverted) set.remove_prefix(1);
  bool found = false;
  for (size_t i = 0; i < set.size(); ++i) {
    if (i + 2 < set.size() && set[i + 1] == '-') {
      found |= static_cast<unsigned char>(set[i]) <= static_cast<unsigned char>(c) &&
               static_cast<unsigned char>(c) <= static_cast<unsigned char>(set[i + 2]);
      i += 2;
    } else {
      found |= set[i] == c;
    }
  }
  return found != inverted;
}

// The index behind the one-byte pattern at `at` if the pattern accepts `c`, else kNone.
size_t step(std::string_view pattern, size_t at, char c) {
  switch (pattern[at]) {
    case '?':
      return at + 1;
    case '[': {
      const size_t end = end_of_set(pattern, at);
      if (end == kNone) return kNone;
      return set_holds(pattern.substr(at + 1, end - at - 2), c) ? end : kNone;
    }
    case '\\':
      return at + 1 < pattern.size() && pattern[at + 1] == c ? at + 2 : kNone;
    default:
      return pattern[at] == c ? at + 1 : kNone;
  }
}

}  // namespace

// After a mismatch only the last * takes one more byte. Earlier ones never need to.
bool glob_fits(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0;
  size_t star = kNone, star_text = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = ++p;
      star_text = t;
      continue;
    }
    const size_t next = p < pattern.size() ? step(pattern, p, text[t]) : kNone;
    if (next != kNone) {
      p = next;
      ++t;
    } else if (star != kNone) {
      p = star;
      t = ++star_text;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

Status check_glob(std::string_view pattern) {
  if (pattern.empty())
    return invalid_argument("the pattern is empty, expected for example \"layer*\"");
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '\\') {
      if (++i < pattern.size()) continue;
      return invalid_argument("the pattern \"{}\" ends in a backslash that quotes nothing",
                              pattern);
    }
    if (pattern[i] != '[') continue;
    const size_t end = end_of_set(pattern, i);
    if (end == kNone) {
      return invalid_argument(
          "the pattern \"{}\" has a [ without ]; write \\[ for the character itself", pattern);
    }
    i = end - 1;
  }
  return {};
}

}  // namespace penstock
