"""The exceptions of the frontends, and the conversion of the runtime's statuses to exceptions."""

from __future__ import annotations

from penstock._runtime_h import (
    ABORTED,
    DEADLINE_EXCEEDED,
    DEVICE_ERROR,
    FAILED_PRECONDITION,
    INTERNAL,
    INVALID_ARGUMENT,
    INVALID_PAYLOAD,
    MISMATCH,
    NOT_FOUND,
    OUT_OF_MEMORY,
    PEER_FAILED,
    UNIMPLEMENTED,
)

STATUS_NAMES = {
    INVALID_ARGUMENT: "invalid argument",
    FAILED_PRECONDITION: "failed precondition",
    NOT_FOUND: "not found",
    UNIMPLEMENTED: "unimplemented",
    INVALID_PAYLOAD: "invalid payload",
    OUT_OF_MEMORY: "out of memory",
    DEADLINE_EXCEEDED: "deadline exceeded",
    PEER_FAILED: "peer failed",
    MISMATCH: "mismatch",
    ABORTED: "aborted",
    DEVICE_ERROR: "device error",
    INTERNAL: "internal",
}


class HorovodInternalError(RuntimeError):
    """The runtime could not carry out a call: ranks disagree, a peer died, the call came at a wrong
    moment, and so on.

    ``code`` is the runtime's error code (see ``STATUS_NAMES``). The class has Horovod's name, so
    that scripts which catch it keep working. ``PenstockError`` is another name of this class.
    """

    def __init__(self, message: str = "", code: int = INTERNAL) -> None:
        super().__init__(message)
        self.code = code


PenstockError = HorovodInternalError


class HostsUpdatedInterrupt(RuntimeError):
    """Horovod's notice that hosts joined or left an elastic job. Penstock does not raise it yet."""

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__()
        self.skip_sync = skip_sync


class HorovodVersionMismatchError(ImportError):
    """Two packages that belong together have versions that do not fit each other."""

    def __init__(self, name: str, version: str, installed_version: str) -> None:
        super().__init__(
            f"{name} has version {installed_version}, this package was made for {version}; install "
            "versions that belong together"
        )
        self.name = name
        self.version = version
        self.installed_version = installed_version


def exception_from(code: int, message: str) -> Exception:
    """The exception for a status: ValueError for an illegal argument, else HorovodInternalError."""
    if code == INVALID_ARGUMENT:
        return ValueError(message)
    return HorovodInternalError(message, code)
