// Writes and reads sections with sdk/wire, so that an oracle in another language can compare its
// own sections. One question per line of standard input, one answer per line of standard output.
// Bytes are hexadecimal digits or "-" if there are none, positions are decimal, and values are the
// 8 digits of their bits:
//
//   write-positions N CODINGS POSITION...    -> BYTES           CODINGS: 1 raw, 2 blocks, 4 Rice
//   read-positions N BYTES                   -> POSITION... or "refused: WHY"
//   write-values CODING VALUE...             -> BYTES VALUE...  VALUE: as the receiver reads it
//   read-values BYTES                        -> VALUE... or "refused: WHY"
#include <algorithm>
#include <bit>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>
#include <wire/positions.hpp>
#include <wire/values.hpp>

namespace penstock::wire {
namespace {

using Bytes = std::vector<unsigned char>;
const kernels::CodePath kPath = kernels::widest_code_path();

std::string hex(const Bytes& bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text.empty() ? "-" : text;
}

Bytes bytes_of(const std::string& text) {
  Bytes bytes;
  if (text == "-") return bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2)
    bytes.push_back(static_cast<unsigned char>(std::stoul(text.substr(i, 2), nullptr, 16)));
  return bytes;
}

std::string value_text(float value) {
  char text[16];
  std::snprintf(text, sizeof text, " %08x", std::bit_cast<uint32_t>(value));
  return text;
}

std::string answer_write_positions(std::istream& words) {
  uint64_t n = 0;
  Codings codings = 0;
  words >> n >> codings;
  std::vector<uint64_t> positions;
  for (uint64_t position; words >> position;) positions.push_back(position);
  const std::span<const uint64_t> span(positions);
  const PositionsPlan plan = plan_positions(span, n, kPath, codings);
  Bytes bytes(plan.bytes());
  write_positions(plan, span, n, bytes.data(), kPath);
  return hex(bytes);
}

std::string answer_read_positions(std::istream& words) {
  uint64_t n = 0;
  std::string text;
  words >> n >> text;
  const Bytes bytes = bytes_of(text);
  PositionsReader<uint64_t> reader(kPath);
  std::string refused = reader.open(bytes, n), answer;
  std::vector<uint64_t> slice;
  while (refused.empty() && reader.left() > 0) {
    slice.resize(std::min(kSlice, reader.left()));
    refused = reader.take(slice);
    for (const uint64_t position : slice) answer += std::to_string(position) + " ";
  }
  return refused.empty() ? answer : "refused: " + refused;
}

std::string answer_write_values(std::istream& words) {
  unsigned coding = 0;
  words >> coding;
  std::vector<float> values;
  for (std::string text; words >> text;)
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(std::stoul(text, nullptr, 16))));
  Bytes bytes(values_bound(values.size()));
  std::vector<float> seen(values.size());
  bytes.resize(
      write_values(static_cast<uint8_t>(coding), values, bytes.data(), kPath, seen.data()));
  std::string answer = hex(bytes);
  for (const float value : seen) answer += value_text(value);
  return answer;
}

std::string answer_read_values(std::istream& words) {
  std::string text;
  words >> text;
  const Bytes bytes = bytes_of(text);
  ValuesReader reader(kPath);
  std::string refused = reader.open(bytes), answer;
  std::vector<float> values(refused.empty() ? reader.left() : 0);
  if (refused.empty()) refused = reader.take(values);
  for (const float value : values) answer += value_text(value);
  return refused.empty() ? answer : "refused: " + refused;
}

std::string answer(const std::string& line) {
  std::istringstream words(line);
  std::string question;
  words >> question;
  if (question == "write-positions") return answer_write_positions(words);
  if (question == "read-positions") return answer_read_positions(words);
  if (question == "write-values") return answer_write_values(words);
  if (question == "read-values") return answer_read_values(words);
  return "unknown question '" + question + "'";
}

}  // namespace
}  // namespace penstock::wire

int main() {
  for (std::string line; std::getline(std::cin, line);)
    std::cout << penstock::wire::answer(line) << std::endl;
}
