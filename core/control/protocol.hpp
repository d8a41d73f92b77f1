// What travels on a control connection: frames of `u32 length, u8 kind, body`, little-endian, and
// their contents.
//
// Every byte that arrives is input: a Reader never reads past its end and a FrameBuffer refuses
// lengths above its limit before it stores anything of that frame.
#pragma once

#include "core/base/status.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::control {

enum class FrameKind : uint8_t {
  // client to server
  hello = 1,       // Hello; the first frame of a connection
  beat = 2,        // Beat
  put = 3,         // id, key, value
  get = 4,         // id, key, timeout_us
  meet = 5,        // Meet
  abort = 6,       // text: why the rank gives up
  goodbye = 7,     // a clean leave; nothing follows
  withdraw = 8,    // id of a Meet for a step: the wait is over
  blocked = 9,     // id of a Meet for an operation: the program goes no further until it ends
  step_news = 10,  // StepNews, for ranks that have joined
  // server to client
  welcome = 32,          // hello accepted
  rejected = 33,         // text: why hello was not
  ready = 34,            // every rank is connected
  pulse = 35,            // text: what rank 0 did last
  reply = 36,            // Reply
  aborted = 37,          // code, text
  warning = 38,          // text
  farewell = 39,         // goodbye was received
  somebody_joined = 40,  // another rank has: tell where steps are, from now on
  add_zeros = 41,        // AddZeros, to a rank that has joined
  step_told = 42,        // StepNews, to a rank that has joined
  datagrams = 43,        // port and token of beats.hpp; port 0: rank 0 has no socket for them
};

// Before hello is accepted a connection belongs to a stranger.
constexpr uint64_t kMaxHelloBytes = 512;
constexpr uint64_t kMaxTextBytes = uint64_t{64} << 20;
constexpr uint64_t kMaxFrameBytes = uint64_t{256} << 20;
constexpr uint64_t kNever = UINT64_MAX;

// Not beyond kNever.
constexpr uint64_t later(uint64_t now_us, uint64_t interval_us) {
  return interval_us > kNever - now_us ? kNever : now_us + interval_us;
}

class Writer {
 public:
  explicit Writer(FrameKind kind);
  Writer& u32(uint32_t value);
  Writer& u64(uint64_t value);
  Writer& text(std::string_view value);
  std::string frame();  // with its length in front; the writer is used up

 private:
  std::string bytes_;
};

// Reads the body of a frame, kind included. After the first read past the end every value is 0 or
// empty.
class Reader {
 public:
  explicit Reader(std::string_view body) : rest_(body) {}
  uint8_t u8();
  uint32_t u32();
  uint64_t u64();
  std::string_view text();
  // A count of things that take at least `least_bytes` each: fails when they cannot all be there.
  uint64_t count(uint64_t least_bytes);
  bool ok() const { return ok_; }
  // True when all was read and nothing is left.
  bool finished() const { return ok_ && rest_.empty(); }

 private:
  std::string_view take(uint64_t bytes);
  std::string_view rest_;
  bool ok_ = true;
};

// Cuts a stream of bytes into frames.
class FrameBuffer {
 public:
  explicit FrameBuffer(uint64_t limit_bytes) : limit_bytes_(limit_bytes) {}
  void set_limit(uint64_t limit_bytes) { limit_bytes_ = limit_bytes; }
  void append(std::string_view bytes) { bytes_.append(bytes); }
  // The next whole frame's body, none when bytes are missing, an error when its length is 0 or
  // above the limit.
  Result<std::optional<std::string>> next();

 private:
  std::string bytes_;
  uint64_t begin_ = 0;
  uint64_t limit_bytes_;
};

struct Hello {
  std::string token;
  uint32_t rank = 0;
  uint32_t size = 0;
  std::string drawn = {};  // at random by this process: no other one has it
  std::string name = {};   // of the process, for people
};

struct Beat {
  std::string note;                                          // what the rank does, or did last
  std::vector<std::pair<std::string, uint64_t>> steps_done;  // per set
  uint32_t hears_datagrams = 0;                              // 1: those of rank 0 come here
};

// What ranks meet for.
enum class Purpose : uint32_t {
  meeting = 0,    // gather and agree: whoever asks waits
  operation = 1,  // a named operation, which takes a place in the run's sequence
  step = 2,       // this rank has waited for messages of a step; nobody need come
  join = 3,       // this rank's data is at an end; the serial of the answer is the last one's rank
};

// What becomes of an operation for which only ranks are missing that have joined.
enum class IfJoined : uint32_t {
  comes = 0,       // they ask for it too, in the end of a step that others tell them of
  adds_zeros = 1,  // it is a sum, and they take part as `zeros` says
  refused = 2,
};

// Who is told the texts of a meeting.
enum class Audience : uint32_t {
  all = 0,    // everybody hears everybody: grows with the square of the ranks
  first = 1,  // everybody hears the first rank
  none = 2,   // that all have come, and agree, is all there is to hear
};

struct Meet {
  uint64_t id = 0;
  Purpose purpose = Purpose::meeting;
  std::string topic;
  std::vector<uint32_t> ranks;  // ascending; none: all of the run
  std::string signature;
  std::string detail;
  uint64_t timeout_us = 0;  // 0: none
  std::string set = {};     // whose step it is, or of an operation: whose steps wait for it
  uint64_t step = 0;
  std::string refusal = {};           // not empty: this rank cannot take part, for this reason
  Audience audience = Audience::all;  // what this rank hears
  IfJoined if_joined = IfJoined::comes;
  std::string zeros = {};  // what a rank that has joined needs to add zeros
};

struct Reply {
  uint64_t id = 0;
  Status status = {};
  std::string value = {};  // get
  uint64_t serial = 0;
  uint64_t left = 0;  // answers to operations that follow this one at once
  std::vector<std::string> details = {};
};

// Others have asked for an operation that is a sum.
struct AddZeros {
  std::string name;
  std::vector<uint32_t> ranks;
  std::string zeros;
  uint64_t serial = 0;
  uint64_t left = 0;
};

// A rank has begun a step of a set, or its optimizer is through with it.
struct StepNews {
  std::string set;
  std::vector<uint32_t> ranks;  // of the set; none: all
  uint64_t step = 0;
  uint32_t over = 0;
  std::string facts;  // of the step, for who takes part without having computed anything
};

std::string encode(const Hello& hello);
std::string encode(const Beat& beat);
std::string encode(const Meet& meet);
std::string encode(const Reply& reply);
std::string encode(const AddZeros& add);
std::string encode(const StepNews& news, FrameKind kind);
// The reader stands behind the kind. None when the bytes are not such a message.
std::optional<Hello> decode_hello(Reader& reader);
std::optional<Beat> decode_beat(Reader& reader);
std::optional<Meet> decode_meet(Reader& reader);
std::optional<Reply> decode_reply(Reader& reader);
std::optional<AddZeros> decode_add_zeros(Reader& reader);
std::optional<StepNews> decode_step_news(Reader& reader);

// "process 4711 on host node03".
std::string name_of_this_process();

// 128 random bits as 32 hexadecimal digits.
Result<std::string> make_token();

// "rank 2", "ranks 0, 1 and 5".
std::string name_ranks(const std::vector<uint32_t>& ranks);
// "1.5 s".
std::string seconds(uint64_t us);
// What a rank told about itself, and how old that is: a sign of life comes only now and then.
// `told_us`: when it came; 0: nothing has.
std::string last_did(std::string_view note, uint64_t told_us, uint64_t now_us);
// "rank 1 gave up: REASON", or the reason alone where that says already who and how.
std::string told_by(uint32_t rank, std::string_view verb, std::string_view reason);
// A text of a rank for a message: at most 200 bytes of its first line.
std::string excerpt(std::string_view text);

// MISMATCH with the first line that differs, its versions and which ranks have which; success when
// all are equal.
Status compare(std::string_view topic, const std::map<uint32_t, std::string_view>& texts);

}  // namespace penstock::control
