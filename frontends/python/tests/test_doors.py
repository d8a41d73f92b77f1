"""The table of docs/ddp.md that says what each door can is what ranks/doors.py finds."""

import json
from pathlib import Path

import pytest
import torch.distributed.fsdp
from launch import HERE, run_ranks

PAGE = HERE.parents[2] / "docs/ddp.md"

pytestmark = pytest.mark.skipif(
    not hasattr(
        getattr(torch.distributed.fsdp, "FSDPModule", None), "set_custom_reduce_scatter"
    ),
    reason="this torch's FSDP2 takes no reduce-scatter of others",
)


def as_markdown(table: dict[str, dict[str, str]]) -> str:
    doors = list(next(iter(table.values())))
    lines = [f"| | {' | '.join(doors)} |", f"|---|{'---|' * len(doors)}"]
    lines += [f"| {what} | {' | '.join(at.values())} |" for what, at in table.items()]
    return "\n".join(lines)


def test_the_page_says_what_each_door_can():
    done = run_ranks("doors.py", 3)
    assert done.returncode == 0, done.stdout[-8000:]
    (found,) = [line for line in done.stdout.splitlines() if line.startswith("table: ")]
    table = as_markdown(json.loads(found[len("table: ") :]))
    assert table in Path(PAGE).read_text(encoding="utf-8"), (
        f"{PAGE} has another table under its heading \"What each door can\", expected:\n{table}"
    )
