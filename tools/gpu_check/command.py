"""Checks the CUDA part on the devices of this machine, part by part, and keeps its results whenever it ends.

Every part is one process or several, with a time limit. A part that fails does not stop other parts. The measured figures, and each goal
with its figure, are written to figures.json and, as a table for docs/performance.md, to figures.md. summary.txt has a line for each part,
and found.tgz has the output of the parts. These files are written after every part and at the end, also if a signal ends the command. A
part that cannot run says "skipped" and why. The status is 1 if a part failed. A second call continues: it does not repeat parts that ended
well with equal files.
"""

from __future__ import annotations

import signal
import sys
import time

BEGIN = time.monotonic()
ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
if __name__ == "__main__":  # signals are blocked until results can be kept
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)

import argparse  # noqa: E402
import os  # noqa: E402
from pathlib import Path  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gpu_check import parts  # noqa: E402
from gpu_check.pack import pack  # noqa: E402
from gpu_check.processes import Stopped, ignore_signals, stop_on_signals  # noqa: E402
from gpu_check.run import Run  # noqa: E402

REPOSITORY = Path(__file__).resolve().parents[2]
WORK = REPOSITORY / "build/gpu-check"
KEEPING_S = 4.0  # to write the last results


def arguments() -> argparse.Namespace:
    names = "\n".join(f"  {part.name:<20} {part.what}" for part in parts.PARTS)
    parser = argparse.ArgumentParser(
        prog="tools/gpu-check", description=__doc__, epilog=f"parts, in the order in which they run:\n{names}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--for", dest="seconds", type=float, metavar="SECONDS", help="the limit over all; parts are briefer with one")
    parser.add_argument("--parts", nargs="+", metavar="NAME", default=[], help="these alone, also those that ended well before")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the files go; else to $OUT, and without that to build/gpu-check")
    parser.add_argument("--build", action="store_true", help="build the programs here, also where some came with a pack")
    parser.add_argument("--again", action="store_true", help="run what ended well before, too")
    parser.add_argument("--pack", action="store_true", help=PACK)
    parser.add_argument("--sources", action="store_true", help="with --pack: without those programs")
    options = parser.parse_args()
    unknown = [name for name in options.parts if name not in parts.NAMES]
    if unknown:
        parser.error(f"--parts names '{unknown[0]}', expected some of: {', '.join(parts.NAMES)}")
    if options.seconds is not None and options.seconds < 20:
        parser.error(f"--for is {options.seconds:g}, expected at least 20 seconds")
    if options.sources and not options.pack:
        parser.error("--sources goes with --pack")
    if options.out is None:
        options.out = Path(os.environ["OUT"]) if os.environ.get("OUT") else WORK
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--out names '{options.out}', expected a folder that can be written: {error.strerror}")
    return options


PACK = (
    "gather all that this needs in build/gpu-pack, with programs for compute capability 9.0 where nvcc is here: copy that folder to a machine with "
    "a device and run its tools/gpu-check. The runtime goes along as it was built here, for the same kind of system; the machine needs torch for it"
)


def main() -> int:
    options = arguments()
    if options.pack:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDS)
        return pack(REPOSITORY, not options.sources)
    until = BEGIN + options.seconds - KEEPING_S if options.seconds else float("inf")
    run = Run(REPOSITORY, WORK, options.out.resolve(), BEGIN, until, is_short=options.seconds is not None)
    status = 0
    try:
        stop_on_signals()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDS)
        run.prepare(options.build, options.again)
        run.parts([part for part in parts.PARTS if not options.parts or part.name in options.parts], anew=bool(options.parts))
    except Stopped as stopped:
        run.say(f"stopped by signal {stopped.number} after {time.monotonic() - BEGIN:.0f} s")
        status = 128 + stopped.number
    finally:
        ignore_signals()
        run.finish()
    return status or (1 if run.failed else 0)


if __name__ == "__main__":
    sys.exit(main())
