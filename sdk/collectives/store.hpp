// The run's store, for transports whose ranks find each other through it. [control]
#pragma once

#include <penstock/host.h>
#include <penstock/error.hpp>

#include <string>
#include <string_view>

namespace penstock::collectives {

// Converts bytes to letters, two letters per byte, because the store takes texts.
inline std::string letters_of(std::string_view bytes) {
  std::string letters;
  for (const char one : bytes) {
    const auto byte = static_cast<unsigned char>(one);
    letters += static_cast<char>('a' + byte / 16);
    letters += static_cast<char>('a' + byte % 16);
  }
  return letters;
}
inline std::string bytes_of(std::string_view letters) {
  std::string bytes;
  for (size_t i = 0; i + 1 < letters.size(); i += 2)
    bytes += static_cast<char>((letters[i] - 'a') * 16 + (letters[i + 1] - 'a'));
  return bytes;
}

inline void put(const penstock_key_value_store& store, std::string_view key,
                std::string_view value) {
  sdk::check(store.put(store.context, sdk::str(key), sdk::str(value)));
}

// Throws DEADLINE_EXCEEDED, with the key, if the key is not in the store in time.
inline std::string get(const penstock_key_value_store& store, std::string_view key,
                       uint64_t timeout_us) {
  std::string value;
  sdk::check(store.get(
      store.context, sdk::str(key), timeout_us, &value,
      [](void* to, penstock_str came) { *static_cast<std::string*>(to) = sdk::view(came); }));
  return value;
}

}  // namespace penstock::collectives
