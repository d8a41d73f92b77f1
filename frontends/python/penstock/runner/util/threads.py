"""Functions in threads of their own, as Horovod's launcher offers them."""

from __future__ import annotations

import threading
from typing import Any, Callable


def in_thread(
    target: Callable[..., Any],
    args: tuple[Any, ...] = (),
    name: str | None = None,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Starts ``target(*args)`` in a thread and returns it.

    silent: exceptions of `target` end the thread without a trace. ValueError if args is no tuple.
    """
    if not isinstance(args, tuple):
        raise ValueError(
            f"args must be a tuple, not {type(args)}, for a single argument use (arg,)"
        )

    def quietly() -> None:
        try:
            target(*args)
        except Exception:  # noqa: BLE001 - `silent` requires it
            pass

    thread = threading.Thread(
        target=quietly if silent else target,
        args=() if silent else args,
        name=name,
        daemon=daemon,
    )
    thread.start()
    return thread
