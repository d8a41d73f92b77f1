#include "core/base/status.hpp"

#include "core/base/printable.hpp"

#include <deque>
#include <vector>

// The host's error object. One allocator and one deleter serve both directions of the boundary.
struct penstock_status {
  penstock::Status status;
};

namespace penstock {

Status Status::with_context(std::string_view context) const {
  if (ok()) return *this;
  return Status(code(), fmt::format("{}: {}", printable_piece(context), message()));
}

namespace {

using Argument = fmt::basic_format_arg<fmt::format_context>;

// An argument with its text from printable_piece. `texts` stores new texts.
struct Printable {
  const Argument& argument;
  std::deque<std::string>& texts;

  Argument operator()(fmt::string_view text) const {
    const std::string_view given(text.data(), text.size());
    if (is_printable(given)) return argument;
    const fmt::string_view made = texts.emplace_back(printable_piece(given));
    return fmt::format_args(fmt::make_format_args(made)).get(0);
  }
  Argument operator()(const char* text) const { return (*this)(fmt::string_view(text)); }
  template <typename Other>
  Argument operator()(const Other&) const {
    return argument;
  }
};

}  // namespace

Status::Status(Code code, std::string message) {
  if (!is_printable(message)) message = printable_lines(message);
  error_ = std::make_shared<const Error>(Error{code, std::move(message)});
}

Status format_error(Code code, fmt::string_view format, fmt::format_args args) {
  std::deque<std::string> texts;
  std::vector<Argument> printable;
  for (int i = 0; args.get(i); ++i) {
    const Argument argument = args.get(i);
    printable.push_back(fmt::visit_format_arg(Printable{argument, texts}, argument));
  }
  return Status(code, fmt::vformat(format, fmt::format_args(printable.data(),
                                                            static_cast<int>(printable.size()))));
}

std::string_view code_name(Code code) {
  switch (code) {
    case Code::ok:
      return "ok";
    case Code::invalid_argument:
      return "invalid argument";
    case Code::failed_precondition:
      return "failed precondition";
    case Code::not_found:
      return "not found";
    case Code::unimplemented:
      return "unimplemented";
    case Code::invalid_payload:
      return "invalid payload";
    case Code::out_of_memory:
      return "out of memory";
    case Code::deadline_exceeded:
      return "deadline exceeded";
    case Code::peer_failed:
      return "peer failed";
    case Code::mismatch:
      return "mismatch";
    case Code::aborted:
      return "aborted";
    case Code::device_error:
      return "device error";
    case Code::internal:
      return "internal";
  }
  return "unknown";
}

penstock_status* to_c(Status status) {
  return status.ok() ? nullptr : new penstock_status{std::move(status)};
}

Status from_c(penstock_status* status) {
  if (status == nullptr) return {};
  Status result = std::move(status->status);
  delete status;
  return result;
}

const Status& peek(const penstock_status* status) {
  static const Status success;
  return status == nullptr ? success : status->status;
}

}  // namespace penstock
