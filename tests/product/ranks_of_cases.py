"""Every rank runs this: the steps of the cases in FOLDER/cases.json over a transport. Writes the results to
FOLDER/rank.RANK.npz, with the key CASE/STEP/GRADIENT.

    python ranks_of_cases.py TRANSPORT FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from cases import Case  # noqa: E402
from steps import Runtime, results  # noqa: E402


def main(transport: str, folder: str) -> None:
    runtime = Runtime("", f'[scheme]\ncollective = "{transport}"\n[runtime]\ndeadline_s = 60\nlog_level = "error"\n', "tests")
    found = {}
    for entry in json.loads((Path(folder) / "cases.json").read_text()):
        case = Case(**entry)
        try:
            steps = results(runtime, case, transport)
        except Exception as error:
            raise RuntimeError(f"{case.name} on rank {runtime.topology.rank}: {error}") from error
        for step, tensors in enumerate(steps):
            found |= {f"{case.name}/{step}/{gradient}": tensor for gradient, tensor in tensors.items()}
    np.savez(Path(folder) / f"rank.{runtime.topology.rank}.npz", **found)
    runtime.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
