#include "core/control/protocol.hpp"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace penstock::control {

namespace {

constexpr uint64_t kLengthBytes = 4;
constexpr uint64_t kExcerptBytes = 200;
// A message shows at most this many versions of a line and only counts the rest, because people
// read it.
constexpr size_t kShownVersions = 4;

template <typename T>
void append_little_endian(std::string& bytes, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
}

template <typename T>
T read_little_endian(std::string_view bytes) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i)
    value |= static_cast<T>(static_cast<uint8_t>(bytes[i])) << (8 * i);
  return value;
}

// Takes the first line from `rest`. Empty if `rest` is empty.
std::optional<std::string_view> next_line(std::string_view& rest) {
  if (rest.empty()) return std::nullopt;
  const size_t end = rest.find('\n');
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  return line;
}

struct Version {
  std::optional<std::string_view> line;  // empty: the text has ended
  std::vector<uint32_t> ranks;
};

std::string describe(const Version& version) {
  const std::string_view verb = version.ranks.size() == 1 ? "has" : "have";
  if (!version.line) return fmt::format("{} {} no such line", name_ranks(version.ranks), verb);
  return fmt::format("{} {} \"{}\"", name_ranks(version.ranks), verb, excerpt(*version.line));
}

}  // namespace

Writer::Writer(FrameKind kind) : bytes_(kLengthBytes, '\0') {
  bytes_.push_back(static_cast<char>(kind));
}

Writer& Writer::u32(uint32_t value) {
  append_little_endian(bytes_, value);
  return *this;
}

Writer& Writer::u64(uint64_t value) {
  append_little_endian(bytes_, value);
  return *this;
}

Writer& Writer::text(std::string_view value) {
  u64(value.size());
  bytes_.append(value);
  return *this;
}

std::string Writer::frame() {
  std::string length;
  append_little_endian(length, static_cast<uint32_t>(bytes_.size() - kLengthBytes));
  bytes_.replace(0, kLengthBytes, length);
  return std::move(bytes_);
}

std::string_view Reader::take(uint64_t bytes) {
  if (!ok_ || bytes > rest_.size()) {
    ok_ = false;
    return {};
  }
  const std::string_view taken = rest_.substr(0, bytes);
  rest_.remove_prefix(bytes);
  return taken;
}

uint8_t Reader::u8() {
  const std::string_view bytes = take(1);
  return ok_ ? static_cast<uint8_t>(bytes[0]) : 0;
}

uint32_t Reader::u32() {
  const std::string_view bytes = take(sizeof(uint32_t));
  return ok_ ? read_little_endian<uint32_t>(bytes) : 0;
}

uint64_t Reader::u64() {
  const std::string_view bytes = take(sizeof(uint64_t));
  return ok_ ? read_little_endian<uint64_t>(bytes) : 0;
}

std::string_view Reader::text() {
  return take(u64());
}

uint64_t Reader::count(uint64_t least_bytes) {
  const uint64_t value = u64();
  if (value > rest_.size() / least_bytes) ok_ = false;
  return ok_ ? value : 0;
}

Result<std::optional<std::string>> FrameBuffer::next() {
  const std::string_view rest = std::string_view(bytes_).substr(begin_);
  if (rest.size() < kLengthBytes) return std::optional<std::string>();
  const uint64_t length = read_little_endian<uint32_t>(rest);
  if (length == 0 || length > limit_bytes_) {
    return invalid_payload("control frame: length is {}, expected 1 to {} bytes", length,
                           limit_bytes_);
  }
  if (rest.size() - kLengthBytes < length) return std::optional<std::string>();
  std::optional<std::string> body(std::in_place, rest.substr(kLengthBytes, length));
  begin_ += kLengthBytes + length;
  if (begin_ == bytes_.size()) {
    bytes_.clear();
    begin_ = 0;
  } else if (begin_ > bytes_.size() / 2) {
    // Moves at most as many bytes as were consumed, so the total time is linear.
    bytes_.erase(0, begin_);
    begin_ = 0;
  }
  return body;
}

std::string encode(const Hello& hello) {
  return Writer(FrameKind::hello)
      .text(hello.token)
      .u32(hello.rank)
      .u32(hello.size)
      .text(hello.drawn)
      .text(hello.name)
      .frame();
}

std::optional<Hello> decode_hello(Reader& reader) {
  Hello hello;
  hello.token = reader.text();
  hello.rank = reader.u32();
  hello.size = reader.u32();
  hello.drawn = reader.text();
  hello.name = reader.text();
  if (!reader.finished()) return std::nullopt;
  return hello;
}

std::string encode(const Beat& beat) {
  Writer writer(FrameKind::beat);
  writer.text(beat.note).u64(beat.steps_done.size());
  for (const auto& [set, steps] : beat.steps_done) writer.text(set).u64(steps);
  return writer.u32(beat.hears_datagrams).frame();
}

std::optional<Beat> decode_beat(Reader& reader) {
  Beat beat;
  beat.note = reader.text();
  beat.steps_done.resize(reader.count(2 * sizeof(uint64_t)));
  for (auto& [set, steps] : beat.steps_done) {
    set = reader.text();
    steps = reader.u64();
  }
  beat.hears_datagrams = reader.u32();
  if (!reader.finished()) return std::nullopt;
  return beat;
}

namespace {

void write_ranks(Writer& writer, const std::vector<uint32_t>& ranks) {
  writer.u64(ranks.size());
  for (uint32_t rank : ranks) writer.u32(rank);
}

std::vector<uint32_t> read_ranks(Reader& reader) {
  std::vector<uint32_t> ranks(reader.count(sizeof(uint32_t)));
  for (uint32_t& rank : ranks) rank = reader.u32();
  return ranks;
}

}  // namespace

std::string encode(const Meet& meet) {
  Writer writer(FrameKind::meet);
  writer.u64(meet.id).u32(static_cast<uint32_t>(meet.purpose)).text(meet.topic);
  write_ranks(writer, meet.ranks);
  writer.text(meet.signature).text(meet.detail).u64(meet.timeout_us);
  writer.text(meet.set).u64(meet.step).text(meet.refusal);
  writer.u32(static_cast<uint32_t>(meet.audience)).u32(static_cast<uint32_t>(meet.if_joined));
  return writer.text(meet.zeros).frame();
}

std::optional<Meet> decode_meet(Reader& reader) {
  Meet meet;
  meet.id = reader.u64();
  const uint32_t purpose = reader.u32();
  meet.purpose = static_cast<Purpose>(purpose);
  meet.topic = reader.text();
  meet.ranks = read_ranks(reader);
  meet.signature = reader.text();
  meet.detail = reader.text();
  meet.timeout_us = reader.u64();
  meet.set = reader.text();
  meet.step = reader.u64();
  meet.refusal = reader.text();
  const uint32_t audience = reader.u32();
  meet.audience = static_cast<Audience>(audience);
  const uint32_t if_joined = reader.u32();
  meet.if_joined = static_cast<IfJoined>(if_joined);
  meet.zeros = reader.text();
  if (!reader.finished() || purpose > static_cast<uint32_t>(Purpose::join) ||
      audience > static_cast<uint32_t>(Audience::none) ||
      if_joined > static_cast<uint32_t>(IfJoined::left_out))
    return std::nullopt;
  return meet;
}

std::string encode(const Reply& reply) {
  Writer writer(FrameKind::reply);
  writer.u64(reply.id).u32(static_cast<uint32_t>(reply.status.code())).text(reply.status.message());
  writer.text(reply.value).u64(reply.serial).u64(reply.left);
  writer.u64(reply.details.size());
  for (const std::string& detail : reply.details) writer.text(detail);
  return writer.frame();
}

std::optional<Reply> decode_reply(Reader& reader) {
  Reply reply;
  reply.id = reader.u64();
  const auto code = static_cast<Code>(reader.u32());
  const std::string_view message = reader.text();
  if (code != Code::ok) reply.status = Status(code, std::string(message));
  reply.value = reader.text();
  reply.serial = reader.u64();
  reply.left = reader.u64();
  reply.details.resize(reader.count(sizeof(uint64_t)));
  for (std::string& detail : reply.details) detail = reader.text();
  if (!reader.finished()) return std::nullopt;
  return reply;
}

std::string encode(const AddZeros& add) {
  Writer writer(FrameKind::add_zeros);
  write_ranks(writer.text(add.name), add.ranks);
  return writer.text(add.zeros).u64(add.serial).u64(add.left).frame();
}

std::optional<AddZeros> decode_add_zeros(Reader& reader) {
  AddZeros add;
  add.name = reader.text();
  add.ranks = read_ranks(reader);
  add.zeros = reader.text();
  add.serial = reader.u64();
  add.left = reader.u64();
  if (!reader.finished()) return std::nullopt;
  return add;
}

std::string encode(const StepNews& news, FrameKind kind) {
  Writer writer(kind);
  write_ranks(writer.text(news.set), news.ranks);
  return writer.u64(news.step).u32(news.over).text(news.facts).frame();
}

std::optional<StepNews> decode_step_news(Reader& reader) {
  StepNews news;
  news.set = reader.text();
  news.ranks = read_ranks(reader);
  news.step = reader.u64();
  news.over = reader.u32();
  news.facts = reader.text();
  if (!reader.finished()) return std::nullopt;
  return news;
}

std::string name_of_this_process() {
  constexpr size_t kMostOfAName = 64;
  char host[256] = {};
  (void)gethostname(host, sizeof(host) - 1);
  return fmt::format("process {} on host {}", getpid(),
                     std::string_view(host).substr(0, kMostOfAName));
}

Result<std::string> make_token() {
  unsigned char bits[16];
  if (getrandom(bits, sizeof(bits), 0) != static_cast<ssize_t>(sizeof(bits))) {
    return internal("control: no random bits for the run's token: {}", std::strerror(errno));
  }
  std::string token;
  for (unsigned char byte : bits) token += fmt::format("{:02x}", byte);
  return token;
}

std::string name_ranks(const std::vector<uint32_t>& ranks) {
  if (ranks.empty()) return "no rank";
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

std::string seconds(uint64_t us) {
  return fmt::format("{:.1f} s", static_cast<double>(us) / 1e6);
}

std::string last_did(std::string_view note, uint64_t told_us, uint64_t now_us) {
  constexpr uint64_t kWorthTellingUs = 1'000'000;
  const std::string text = fmt::format(
      "it last did: {}", note.empty() ? std::string_view("nothing that it reported") : note);
  const uint64_t age_us = now_us - std::min(now_us, told_us);
  if (told_us == 0 || age_us < kWorthTellingUs) return text;
  return fmt::format("{} (it reported this {} ago)", text, seconds(age_us));
}

std::string told_by(uint32_t rank, std::string_view verb, std::string_view reason) {
  if (reason.starts_with(fmt::format("rank {} ", rank))) return std::string(reason);
  return fmt::format("rank {} {}: {}", rank, verb, reason);
}

std::string excerpt(std::string_view text) {
  text = text.substr(0, text.find('\n'));
  if (text.size() <= kExcerptBytes) return std::string(text);
  size_t end = kExcerptBytes;
  while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80)
    --end;  // not inside a UTF-8 character
  return std::string(text.substr(0, end)) + "...";
}

Status compare(std::string_view topic, const std::map<uint32_t, std::string_view>& texts) {
  const auto differs = [&](const auto& entry) { return entry.second != texts.begin()->second; };
  if (std::none_of(texts.begin(), texts.end(), differs)) return {};
  std::map<uint32_t, std::string_view> rests = texts;
  for (size_t number = 1;; ++number) {
    std::vector<Version> versions;
    for (auto& [rank, rest] : rests) {
      const std::optional<std::string_view> line = next_line(rest);
      const auto same = [&](const Version& version) { return version.line == line; };
      auto version = std::find_if(versions.begin(), versions.end(), same);
      if (version == versions.end()) version = versions.insert(version, Version{line, {}});
      version->ranks.push_back(rank);
    }
    if (versions.size() == 1) {
      // If the texts differ only in a line break at the end, no line differs.
      if (versions[0].line) continue;
      return mismatch("'{}' must be equal on its ranks but differs in line breaks at its end",
                      topic);
    }
    std::string parts = describe(versions[0]);
    for (size_t i = 1; i < std::min(versions.size(), kShownVersions); ++i)
      parts += "; " + describe(versions[i]);
    if (versions.size() > kShownVersions) {
      parts += fmt::format("; and {} more versions", versions.size() - kShownVersions);
    }
    return mismatch("'{}' must be equal on its ranks but differs in line {}: {}", topic, number,
                    parts);
  }
}

}  // namespace penstock::control
