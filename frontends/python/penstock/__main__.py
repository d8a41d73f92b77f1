"""The command ``penstock``, for ``python -m penstock ...`` and for the script that pip installs.

The command is a separate program, in the package or in the release build of a checkout. It replaces
this process.
"""

from __future__ import annotations

import os
import sys

from penstock._places import find
from penstock._ucx import from_package_index


def main() -> None:
    """Replaces this process by the command, or ends the process with a message. Does not return."""
    command, places = find("bin/penstock", "bin/penstock")
    if command is None:
        looked = " or ".join(str(place) for place in places)
        sys.exit(f"penstock: the command is not in {looked}; install the wheel, or run tools/setup")
    # Then `penstock run -- python ...` starts the Python of this package.
    os.environ["PENSTOCK_PYTHON"] = sys.executable
    ucx = from_package_index()
    if ucx:
        before = os.environ.get("LD_LIBRARY_PATH")
        os.environ["LD_LIBRARY_PATH"] = f"{before}:{ucx}" if before else str(ucx)
    os.execv(command, ["penstock", *sys.argv[1:]])


if __name__ == "__main__":
    main()
