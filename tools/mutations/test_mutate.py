"""The list of changes fits the code as it is; tools/mutate itself, which takes long, is run by hand."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import mutate  # noqa: E402

MUTATIONS = mutate.load(Path(__file__).parent)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_the_text_to_change_stands_once_in_its_file(mutation: mutate.Mutation) -> None:
    assert (mutate.REPOSITORY / mutation.file).read_text().count(mutation.old) == 1


def test_there_are_at_least_thirty_changes() -> None:
    assert len(MUTATIONS) >= 30


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("mutation = [", "expected"),
        ('[[mutation]]\nname = "a"', "lacks"),
        ('[[mutation]]\nname="a"\nfile="f"\nold="x"\nnew="x"\ntests=["t"]', "changes nothing"),
        ('[[mutation]]\nname="a"\nfile="f"\nold="x"\nnew="y"\ntests=["t"]\n' * 2, "twice"),
    ],
)
def test_a_broken_list_is_refused_with_the_reason(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "broken.toml").write_text(text)
    with pytest.raises(mutate.BrokenList, match=complaint):
        mutate.load(tmp_path)


def test_a_change_whose_text_is_gone_is_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutate, "COPY", tmp_path)
    (tmp_path / "code.cpp").write_text("return a + b;\n")
    outcome = mutate.attempt(mutate.Mutation("gone", "code.cpp", "a - b", "a + b", ("t",)))
    assert outcome.verdict == "stale" and not outcome.good
