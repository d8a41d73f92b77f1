#include "core/base/status.hpp"

// The host's error object. One allocator and one deleter for both directions of the boundary.
struct penstock_status {
  penstock::Status status;
};

namespace penstock {

Status Status::with_context(std::string_view context) const {
  return ok() ? *this : Status(code(), fmt::format("{}: {}", context, message()));
}

Status format_error(Code code, fmt::string_view format, fmt::format_args args) {
  return Status(code, fmt::vformat(format, args));
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
