"""Every file of conf/ on real ranks: equal parameters everywhere; a saved run goes on to the bit in new processes."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tools"))

from quickstart_job import launch  # noqa: E402

DEADLINE_S = 600
RANKS = 3  # two would give equal sums in either order


def test_a_saved_run_goes_on_to_the_bit_and_ranks_agree() -> None:
    with tempfile.TemporaryDirectory() as folder:  # a hundred megabytes that nobody looks at afterwards
        for mode in ("straight", "resume"):
            line = launch.command(RANKS, [str(HERE / "every_conf.py"), mode, folder])
            ran = subprocess.run(line, env=launch.environment(), capture_output=True, text=True, timeout=DEADLINE_S)
            assert ran.returncode == 0, f"{mode}: status {ran.returncode}\n{ran.stdout[-4000:]}\n{ran.stderr[-4000:]}"
            assert " files, 0 failed" in ran.stdout, ran.stdout
