// The frames on a control connection, `u32 length, u8 kind, body`, little-endian, and their
// contents.
//
// Every received byte is untrusted input: a Reader never reads past its end, and a FrameBuffer
// refuses lengths above its limit before it stores anything of that frame.
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
  abort = 6,       // text: the reason why the rank aborts
  goodbye = 7,     // a clean leave; nothing follows
  withdraw = 8,    // id of a Meet for a step: the wait is over
  blocked = 9,     // id of a Meet for an operation: the program cannot continue until it ends
  step_news = 10,  // StepNews, to be passed to ranks that have joined
  // server to client
  welcome = 32,          // hello accepted
  rejected = 33,         // text: the reason for the refusal
  ready = 34,            // every rank is connected
  pulse = 35,            // text: rank 0's last activity
  reply = 36,            // Reply
  aborted = 37,          // code, text
  warning = 38,          // text
  farewell = 39,         // goodbye was received
  somebody_joined = 40,  // another rank has joined: report step_news from now on
  add_zeros = 41,        // AddZeros, sent to a rank that has joined
  step_notice = 42,      // StepNews, sent to a rank that has joined
  datagrams = 43,        // port and token of beats.hpp; port 0: rank 0 has no socket for them
};

// The limit of frames before hello is accepted; until then the peer is unknown.
constexpr uint64_t kMaxHelloBytes = 512;
constexpr uint64_t kMaxTextBytes = uint64_t{64} << 20;
constexpr uint64_t kMaxFrameBytes = uint64_t{256} << 20;
constexpr uint64_t kNever = UINT64_MAX;

// The sum, at most kNever.
constexpr uint64_t later(uint64_t now_us, uint64_t interval_us) {
  return interval_us > kNever - now_us ? kNever : now_us + interval_us;
}

class Writer {
 public:
  explicit Writer(FrameKind kind);
  Writer& u32(uint32_t value);
  Writer& u64(uint64_t value);
  Writer& text(std::string_view value);
  std::string frame();  // with its length in front; consumes the writer

 private:
  std::string bytes_;
};

// Reads the body of a frame, its kind included. After the first read past the end, every read
// returns 0 or an empty text.
class Reader {
 public:
  explicit Reader(std::string_view body) : rest_(body) {}
  uint8_t u8();
  uint32_t u32();
  uint64_t u64();
  std::string_view text();
  // Reads a count of elements that take at least `least_bytes` each. Fails if the rest of the body
  // is too short for them.
  uint64_t count(uint64_t least_bytes);
  bool ok() const { return ok_; }
  // True if everything was read without an error.
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
  // The body of the next whole frame; empty if bytes are missing; an error if its length is 0 or
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
  std::string drawn = {};  // random text, different in every process
  std::string name = {};   // name of the process, for messages
};

struct Beat {
  std::string note;                                          // the rank's current or last activity
  std::vector<std::pair<std::string, uint64_t>> steps_done;  // finished steps per set
  uint32_t hears_datagrams = 0;                              // 1: rank 0's datagrams arrive here
};

// The purpose of a rendezvous.
enum class Purpose : uint32_t {
  rendezvous = 0,  // gather and agree: the caller waits
  operation = 1,   // a named operation, which takes a place in the run's sequence
  step = 2,        // this rank has waited for messages of a step; other ranks need not come
  // This rank has no more data; the serial in the answer is the rank that joined last.
  join = 3,
};

// The outcome of an operation for which only joined ranks are missing.
enum class IfJoined : uint32_t {
  comes = 0,       // they request it too, at the end of a step that other ranks announce to them
  adds_zeros = 1,  // it is a sum, and they add zeros as `zeros` describes
  refused = 2,
  left_out = 3,  // it goes on without them, and they do not hear of it
};

// The ranks whose texts a rank receives in a rendezvous.
enum class Audience : uint32_t {
  all = 0,    // every rank receives every text: grows with the square of the number of ranks
  first = 1,  // every rank receives the first rank's text
  none = 2,   // no texts: a rank learns only that all ranks have come and agree
};

struct Meet {
  uint64_t id = 0;
  Purpose purpose = Purpose::rendezvous;
  std::string topic;
  std::vector<uint32_t> ranks;  // ascending; empty: all ranks of the run
  std::string signature;
  std::string detail;
  uint64_t timeout_us = 0;  // 0: no timeout
  // The set of the step; for an operation, the set whose steps wait for it.
  std::string set = {};
  uint64_t step = 0;
  std::string refusal = {};           // if not empty, the reason why this rank cannot take part
  Audience audience = Audience::all;  // the texts that this rank receives
  IfJoined if_joined = IfJoined::comes;
  std::string zeros = {};  // the data that a joined rank needs to add zeros
};

struct Reply {
  uint64_t id = 0;
  Status status = {};
  std::string value = {};  // get
  uint64_t serial = 0;
  uint64_t left = 0;  // number of answers to operations that follow this answer at once
  std::vector<std::string> details = {};
};

// Sent when the other ranks have requested an operation that is a sum.
struct AddZeros {
  std::string name;
  std::vector<uint32_t> ranks;
  std::string zeros;
  uint64_t serial = 0;
  uint64_t left = 0;
};

// A rank has begun a step of a set, or the step of its optimizer is over.
struct StepNews {
  std::string set;
  std::vector<uint32_t> ranks;  // the ranks of the set; empty: all
  uint64_t step = 0;
  uint32_t over = 0;
  std::string facts;  // facts of the step, for a rank that takes part without gradients of its own
};

std::string encode(const Hello& hello);
std::string encode(const Beat& beat);
std::string encode(const Meet& meet);
std::string encode(const Reply& reply);
std::string encode(const AddZeros& add);
std::string encode(const StepNews& news, FrameKind kind);
// Reads the body behind the kind. Empty if the bytes are not such a message.
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
// The activity that a rank last reported, and the age of the report, because heartbeats come only
// at intervals. `told_us`: arrival of the report; 0: no report has come.
std::string last_did(std::string_view note, uint64_t told_us, uint64_t now_us);
// "rank 1 gave up: REASON", or only the reason if it already names the rank and the verb.
std::string told_by(uint32_t rank, std::string_view verb, std::string_view reason);
// A text of a rank for a message: at most 200 bytes of its first line.
std::string excerpt(std::string_view text);

// MISMATCH with the first line that differs, its versions and the ranks of each version; success if
// all texts are equal.
Status compare(std::string_view topic, const std::map<uint32_t, std::string_view>& texts);

}  // namespace penstock::control
