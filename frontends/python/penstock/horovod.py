"""``python -m penstock.horovod train.py [arguments]`` runs an unchanged Horovod script on Penstock.
With a launcher: ``penstock run -np 4 -- python -m penstock.horovod train.py``."""

from __future__ import annotations

import os
import runpy
import sys


def main() -> None:
    """Runs the script named first on the command line as the main program."""
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        asked = len(sys.argv) > 1
        text = "usage: python -m penstock.horovod SCRIPT [ARGUMENT ...]\n\n" + (__doc__ or "")
        print(text, file=sys.stdout if asked else sys.stderr)
        sys.exit(0 if asked else 2)
    script = sys.argv[1]
    if not os.path.isfile(script):
        sys.exit(f"penstock.horovod: {script} is not a file, expected a Python script")
    import penstock.horovod_alias  # noqa: F401 - imported for its effect

    # Like python itself, search the script's own folder first.
    sys.argv = sys.argv[1:]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
