// Status and Result: how errors travel inside the core. No exceptions, no globals.
//
// The first function that knows the cause writes the message (thing, value, expectation, remedy, in
// lower case); the others pass it up with PENSTOCK_TRY. A Status is one pointer; success is null,
// so the good path costs nothing.
#pragma once

#include <penstock/base.h>

#include <fmt/core.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace penstock {

enum class Code : uint32_t {
  ok = PENSTOCK_OK,
  invalid_argument = PENSTOCK_INVALID_ARGUMENT,
  failed_precondition = PENSTOCK_FAILED_PRECONDITION,
  not_found = PENSTOCK_NOT_FOUND,
  unimplemented = PENSTOCK_UNIMPLEMENTED,
  invalid_payload = PENSTOCK_INVALID_PAYLOAD,
  out_of_memory = PENSTOCK_OUT_OF_MEMORY,
  deadline_exceeded = PENSTOCK_DEADLINE_EXCEEDED,
  peer_failed = PENSTOCK_PEER_FAILED,
  mismatch = PENSTOCK_MISMATCH,
  aborted = PENSTOCK_ABORTED,
  device_error = PENSTOCK_DEVICE_ERROR,
  internal = PENSTOCK_INTERNAL,
};

// "invalid_argument", ...; "unknown" for a number that is no Code.
std::string_view code_name(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  // Escapes characters that could control a terminal, except line ends.
  Status(Code code, std::string message);

  bool ok() const { return error_ == nullptr; }
  Code code() const { return ok() ? Code::ok : error_->code; }
  // Empty for success.
  std::string_view message() const { return ok() ? std::string_view() : error_->message; }
  // The same error with `context: ` before its message; success stays success.
  Status with_context(std::string_view context) const;

 private:
  struct Error {
    Code code;
    std::string message;
  };
  // Shared: one error may be handed to every waiter of a bucket.
  std::shared_ptr<const Error> error_;
};

// A value or the reason why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : status_(std::move(status)) {}

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() { return *value_; }
  const T& value() const { return *value_; }
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

// One function formats every error, so that its hundreds of callers compile no formatting of their
// own; the format string is still checked against its arguments when the caller is compiled. It
// escapes the texts among them: they may come from a file, the environment or a peer.
Status format_error(Code code, fmt::string_view format, fmt::format_args args);
#define PENSTOCK_ERROR_MAKER(name)                                           \
  template <typename... Args>                                                \
  Status name(fmt::format_string<Args...> format, Args&&... args) {          \
    return format_error(Code::name, format, fmt::make_format_args(args...)); \
  }
PENSTOCK_ERROR_MAKER(invalid_argument)
PENSTOCK_ERROR_MAKER(failed_precondition)
PENSTOCK_ERROR_MAKER(not_found)
PENSTOCK_ERROR_MAKER(unimplemented)
PENSTOCK_ERROR_MAKER(invalid_payload)
PENSTOCK_ERROR_MAKER(out_of_memory)
PENSTOCK_ERROR_MAKER(deadline_exceeded)
PENSTOCK_ERROR_MAKER(peer_failed)
PENSTOCK_ERROR_MAKER(mismatch)
PENSTOCK_ERROR_MAKER(aborted)
PENSTOCK_ERROR_MAKER(device_error)
PENSTOCK_ERROR_MAKER(internal)
#undef PENSTOCK_ERROR_MAKER

// Status across the C boundary: the core is the host, so it makes and reads every penstock_status.
penstock_status* to_c(Status status);               // null for success; the receiver frees it
Status from_c(penstock_status* status);             // takes ownership
const Status& peek(const penstock_status* status);  // reads without taking; null is success
inline std::string_view view(penstock_str text) {
  return {text.data, text.size};
}
inline penstock_str str(std::string_view text) {
  return {text.data(), text.size()};
}

}  // namespace penstock

// Returns the Status of `expression` to the caller unless it is success.
#define PENSTOCK_TRY(expression)                                                          \
  do {                                                                                    \
    if (::penstock::Status penstock_try_status = (expression); !penstock_try_status.ok()) \
      return penstock_try_status;                                                         \
  } while (false)

#define PENSTOCK_CONCAT_INNER(a, b) a##b
#define PENSTOCK_CONCAT(a, b) PENSTOCK_CONCAT_INNER(a, b)
// PENSTOCK_ASSIGN(auto x, result_expression): x is the value, or the function returns the error.
#define PENSTOCK_ASSIGN(declaration, expression)                   \
  auto PENSTOCK_CONCAT(penstock_result_, __LINE__) = (expression); \
  if (!PENSTOCK_CONCAT(penstock_result_, __LINE__).ok())           \
    return PENSTOCK_CONCAT(penstock_result_, __LINE__).status();   \
  declaration = std::move(PENSTOCK_CONCAT(penstock_result_, __LINE__).value())
