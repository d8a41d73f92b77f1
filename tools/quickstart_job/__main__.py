"""The main job after set-up: four ranks on four hosts with links of a rate, or on this host where there can be none.

    python -m quickstart_job --link 100mbit --out build/quickstart [options of quickstart_job.train]

What the ranks say is shown and kept in DIR/log.txt. The status is theirs.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from hosts import HostsError, link_of

from . import launch

RANKS = 4


def say(words: str, log: IO[bytes]) -> None:
    line = f"[quickstart] {words}\n".encode()
    for file in (sys.stdout.buffer, log):
        file.write(line)
        file.flush()


def follow(job: subprocess.Popen[Any], log: IO[bytes]) -> int:
    """Shows and keeps what the job says until it ends; ends it where we are told to. Its status."""
    assert job.stdout is not None
    try:
        while said := job.stdout.read1(65536):  # type: ignore[attr-defined]
            for file in (sys.stdout.buffer, log):
                file.write(said)
                file.flush()
        return job.wait()
    finally:
        if job.poll() is None:
            job.terminate()
            try:
                job.wait(timeout=10)
            except subprocess.TimeoutExpired:
                job.kill()


def run(link: str, arguments: Sequence[str], log: IO[bytes]) -> int:
    """Errors: HostsError where no hosts can be made, launch.LaunchError."""
    job = ["-m", "quickstart_job.train", *arguments]
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    if link == "none":
        say(f"training on {RANKS} ranks of this host ...", log)
        with subprocess.Popen(launch.command(RANKS, job), env=launch.environment(), **pipes) as process:
            return follow(process, log)
    chosen = link_of(link)
    with chosen.hosts(RANKS) as hosts:
        say(f"training on {RANKS} hosts with links of {chosen.words} (network namespaces of this machine) ...", log)
        environment = {**launch.environment(), **hosts.environment()}
        command = launch.command_on_hosts(RANKS, [*job, "--link", link])
        with hosts.start(command, env=environment, **pipes) as process:
            status = follow(process, log)
        if text := hosts.report_text():
            say(text, log)
        return status


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="quickstart_job", description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--link", default="100mbit", metavar="RATE", help="of every link: a rate as tc writes it, wan, or none")
    parser.add_argument("--out", type=Path, default=Path("build/quickstart"), metavar="DIR")
    options, rest = parser.parse_known_args(arguments)
    if options.link != "none":
        try:
            link_of(options.link)
        except ValueError as error:
            parser.error(str(error))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that what was begun is ended
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "summary.json").unlink(missing_ok=True)  # an old one must not pass for this run's
    rest += ["--out", str(options.out)]
    os.environ["PYTHONUNBUFFERED"] = "1"
    with (options.out / "log.txt").open("wb") as log:
        try:
            return run(options.link, rest, log)
        except HostsError as error:
            say(f"no links can be shaped here ({error}): the ranks share this host", log)
            return run("none", rest, log)
        except KeyboardInterrupt:
            return 128 + signal.SIGINT


if __name__ == "__main__":
    try:
        sys.exit(main())
    except launch.LaunchError as error:
        sys.exit(f"quickstart: {error}")
