"""The search for learning rates: where it looks, what it keeps, and that it goes on where it stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
import warm_python

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benches import convergence, tune  # noqa: E402
from quickstart_job.recipes import recipe  # noqa: E402

RUN = ("--task", "digits", "--steps", "12", "--schemes", "s-sgd,wfbp,sign-sgd-majority", "--workers", "2")


def search(name: str = "s-sgd", first: tuple[float, ...] = (1e-3, 3e-3, 1e-2)) -> tune.Search:
    return tune.Search(recipe(name), convergence.Setting("digits", 12), 1, first)


def explore(bits, one: tune.Search) -> list[float]:
    """All rates a search asks for where `bits` gives the loss of each."""
    while rates := one.missing():
        one.tried |= {rate: bits(rate) for rate in rates}
    return sorted(one.tried)


def test_the_middle_rate_comes_first() -> None:
    assert search().missing()[0] == 3e-3


def test_a_best_rate_between_two_others_ends_the_search() -> None:
    assert explore(lambda rate: abs(rate - 3e-3), search()) == [1e-3, 3e-3, 1e-2]


@pytest.mark.parametrize("sign, rates", [(-1, [1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1]), (1, [3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2])])
def test_a_best_rate_at_an_end_asks_for_one_beyond_it_and_not_for_ever(sign, rates) -> None:
    assert explore(lambda rate: sign * rate, search()) == pytest.approx(rates)


def test_a_run_that_does_not_converge_is_the_worst() -> None:
    one = search()
    assert explore(lambda rate: tune.WORST if rate > 2e-3 else 2.0 - rate, one) == [3e-4, 1e-3, 3e-3, 1e-2]
    assert one.best == 1e-3


def test_training_that_diverges_is_stopped_and_counts_as_worst() -> None:
    assert tune.run(recipe("power-sgd"), convergence.Setting("digits", 12), 1, 1e6) == tune.WORST


def test_another_optimizer_is_searched_apart_from_the_rates_that_others_take(tmp_path, capsys) -> None:
    assert tune.trained_with(recipe("ef-sign"), "sgd").optimizer("digits").words == "SGD 0.001, momentum 0"
    assert tune.trained_with(recipe("dgc"), "adamw").optimizer("digits").momentum == 0
    with pytest.raises(SystemExit):
        tune.parse(["--optimizer", "sgd"])
    assert "--optimizer goes with --output FILE" in capsys.readouterr().err
    assert tune.parse(["--optimizer", "sgd", "--output", str(tmp_path / "sgd.toml")]).optimizer == "sgd"


def test_a_search_that_was_stopped_goes_on_where_it_stopped(tmp_path, monkeypatch, capsys) -> None:
    file = tmp_path / "tuned.toml"
    monkeypatch.setattr(convergence, "CACHE", tmp_path / "cache")
    assert tune.main([*RUN, "--output", str(file)]) == 0
    whole = file.read_text()
    table = tomllib.loads(whole)["digits"]
    assert table["s-sgd"]["tried"] == table["wfbp"]["tried"], "they compute the same"
    for entry in table.values():
        tried = {rate: bits for rate, bits in entry["tried"]}
        assert len(tried) >= 3 and tried[entry["rate"]] == min(tried.values())
    assert (table["s-sgd"]["optimizer"], table["sign-sgd-majority"]["optimizer"]) == ("adamw", "sgd")

    def forget(entry):
        entry["tried"] = [pair for pair in entry["tried"] if pair[0] != lost]

    lost = table["sign-sgd-majority"]["rate"]
    forget(table["sign-sgd-majority"])
    file.write_text(tune.HEAD + tune.toml_text.dump({"digits": table}))
    capsys.readouterr()
    assert tune.main([*RUN, "--output", str(file)]) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if " bits (" in line]
    assert len(said) == 1 and f"sign-sgd-majority, SGD {lost:g}" in said[0]
    assert file.read_text() == whole


def test_runs_of_another_length_are_not_taken_for_those_wanted(tmp_path) -> None:
    one = search()
    one.tried = {1e-3: 2.0}
    tune.record(tmp_path / "tuned.toml", one)
    table = tune.read(tmp_path / "tuned.toml")
    assert tune.tried_before(table, search()) == {1e-3: 2.0}
    longer = tune.Search(recipe("s-sgd"), convergence.Setting("digits", 13), 1, (1e-3, 3e-3, 1e-2))
    assert tune.tried_before(table, longer) == {}


@pytest.mark.parametrize("arguments, named", [(("--rates", "1,2"), "--rates"), (("--rates", "a,b,c"), "--rates"),
                                              (("--schemes", "topq"), "'topq'"), (("--steps", "0"), "--steps")])
def test_what_cannot_be_searched_is_refused_by_name(arguments, named, capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        tune.parse(arguments)
    assert ended.value.code == 2 and named in capsys.readouterr().err


def children(process: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def wait_until(holds, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.05)
    return bool(holds())


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds child processes in /proc")
def test_runs_end_with_a_search_that_was_ended_by_a_signal(tmp_path) -> None:
    endless = ("--task", "digits", "--steps", "1000000", "--schemes", "s-sgd", "--workers", "1", "--output", str(tmp_path / "tuned.toml"))
    command = [warm_python.REAL, "-c", f"import sys; from benches import tune; sys.exit(tune.main({endless!r}))"]
    tools = str(Path(__file__).resolve().parents[1])
    started = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": tools}, stderr=subprocess.DEVNULL)
    try:
        assert wait_until(lambda: len(children(started.pid)) >= 2, 60), "a worker and the tracker of shared resources"
        workers = children(started.pid)
        time.sleep(3)  # until it has begun a run, mostly; the test holds before too
    finally:
        started.send_signal(signal.SIGTERM)
        started.wait(30)
    assert wait_until(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers), 20)
