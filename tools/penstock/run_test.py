"""Tests of `penstock run`: the output of ranks, the end of a run, and ranks that do not end by themselves."""

import itertools
import os
import pathlib
import pty
import signal
import subprocess
import sys
import time

import pytest
from long_runs import IS_LONG

from command_test import BUILD, COMMAND, ROOT, needs_mpirun, penstock

pytestmark = needs_mpirun

RANK = "$OMPI_COMM_WORLD_RANK"
# Far longer than the end of a run may take, also on a busy machine.
SOON = 60


def run(ranks, script, *options, **environment):
    """A shell script on several ranks, with the time that the whole took."""
    start = time.monotonic()
    ran = penstock("run", "-np", ranks, *options, "--", "sh", "-c", script, **environment)
    ran.seconds = time.monotonic() - start
    return ran


def is_alive(pid):
    try:
        return pathlib.Path("/proc", str(pid), "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def assert_all_end(folder, ranks):
    """The processes whose ids the ranks wrote into `folder` are gone, or go within a moment."""
    pids = [(folder / str(rank)).read_text().strip() for rank in range(ranks)]
    deadline = time.monotonic() + 20
    while any(map(is_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(is_alive, pids))


# ---- lines ----


def test_each_line_bears_its_rank():
    ran = run(3, f"echo out {RANK}; echo err {RANK} >&2")
    assert ran.returncode == 0, ran.stderr
    assert sorted(ran.stdout.splitlines()) == [f"[{rank}] out {rank}" for rank in range(3)]
    assert sorted(ran.stderr.splitlines()) == [f"[{rank}] err {rank}" for rank in range(3)]


def test_lines_that_come_in_pieces_are_put_together_per_rank(tmp_path):
    # Each rank waits for the other between two halves of its line.
    script = (f"printf 'first half, '; touch {tmp_path}/{RANK}; "
              f"until [ -e {tmp_path}/0 ] && [ -e {tmp_path}/1 ]; do :; done; echo second half")
    ran = run(2, script)
    lines = "".join(ran.stdout.splitlines(keepends=True))
    assert ran.returncode == 0, ran.stderr
    for rank in range(2):
        assert f"[{rank}] first half, " in lines
    assert lines.count("second half\n") == 2


def test_without_prefix_lines_are_as_the_program_wrote_them():
    ran = penstock("run", "-np", 1, "--no-prefix", "--", "printf", "[%s]", "a b", "--json", "$HOME", "")
    assert ran.returncode == 0 and ran.stdout.rstrip("\n") == "[a b][--json][$HOME][]"


@pytest.mark.parametrize("noise", [
    "[host:1] PMIX ERROR: BAD-PARAM in file ../src/event/pmix_event_notification.c at line 1033",
    "[host:1] plm:rsh: Warning: setpgid(51,51) failed in parent with errno=Permission denied(13)"], ids=("pmix", "setpgid"))
def test_known_noise_of_open_mpi_is_dropped(noise):
    ran = run(2, f"if [ {RANK} = 0 ]; then echo '{noise}' >&2; echo useful >&2; exit 3; fi")
    assert noise not in ran.stderr and "[0] useful" in ran.stderr


# ---- configuration ----


def test_ranks_get_the_configuration_as_an_absolute_path():
    config = ROOT / "conf/s-sgd.toml"
    ran = penstock("run", "-np", 2, "--config", "s-sgd.toml", "--", "sh", "-c", f'echo "{RANK} $PENSTOCK_CONFIG"',
                   cwd=config.parent)
    assert ran.returncode == 0, ran.stderr
    assert sorted(ran.stdout.splitlines()) == [f"[{rank}] {rank} {config}" for rank in range(2)]


@pytest.mark.parametrize("text, expected", [
    ("[scheme]\ncompresor = 1\n", "bad.toml:2:"),
    ('[scheme]\ncompressor = "topk"\n[compressor.topk]\ndensty = 0.1\n', 'did you mean "density"')])
@pytest.mark.parametrize("by_variable", [False, True])
def test_a_configuration_that_is_wrong_is_one_message_before_any_rank_starts(text, expected, by_variable, tmp_path):
    bad = tmp_path / "bad.toml"
    bad.write_text(text)
    given = ((), {"PENSTOCK_CONFIG": str(bad)}) if by_variable else (("--config", bad), {})
    ran = run(2, f"touch {tmp_path}/ran", *given[0], **given[1])
    assert ran.returncode == 2 and expected in ran.stderr
    assert len(ran.stderr.splitlines()) == 1 and ran.stderr.startswith("penstock: ")
    assert not (tmp_path / "ran").exists()


def test_wrong_calls_are_refused_before_any_rank_starts(tmp_path):
    for arguments, expected in [(("-np", 2), "no program"), (("-np", 2, "--", "no-such-program"), "no-such-program"),
                                (("-np", 2, "--hosts", tmp_path / "none", "--", "true"), "hosts")]:
        ran = penstock("run", *arguments)
        assert ran.returncode == 2 and expected in ran.stderr
    ran = penstock("run", "-np", 2, "--", "true", PATH=str(tmp_path))
    assert ran.returncode == 1 and "openmpi" in ran.stderr


# ---- how a run ends ----


@pytest.mark.parametrize("end, status, reason", [
    ("exit 7", 7, "exited with status 7"), ("kill -9 $$", 137, "ended by signal 9 (SIGKILL)")])
def test_the_first_cause_is_told_once_and_the_others_may_finish(end, status, reason, tmp_path):
    # Rank 0 goes on only after rank 1 has written its process id and is gone; its output still arrives.
    script = (f'if [ {RANK} = 1 ]; then echo the reason >&2; echo $$ > {tmp_path}/new; mv {tmp_path}/new '
              f'{tmp_path}/pid; {end}; fi; until [ -e {tmp_path}/pid ] && ! kill -0 $(cat {tmp_path}/pid) 2>/dev/null; '
              'do :; done; echo survivor')
    ran = run(2, script, "--grace", 30)
    assert ran.returncode == status, ran.stderr
    assert ran.stdout.splitlines() == ["[0] survivor"]
    summary = [line for line in ran.stderr.splitlines() if line.startswith("penstock: ")]
    assert summary == [f"penstock: rank 1 failed first: it {'was ' if 'signal' in reason else ''}{reason}; "
                       "its last error: the reason"]


def test_marks_below_a_line_of_code_are_no_error_wherever_a_line_was_cut():
    script = ('echo "Traceback (most recent call last):" >&2; echo "    f(x)" >&2; echo "^^^^~~~^^" >&2; '
              'echo "ValueError: bad luck" >&2; exit 1')
    assert "its last error: ValueError: bad luck" in run(1, script).stderr


@pytest.mark.parametrize("words", [
    "it: rank 1 has left the run after 3 steps; every rank must make the same number of steps",
    "it: rank 1 failed: its connection was closed",
    "it: rank 1 gave the run up: bad luck",
    "it: rank 1 ended with ValueError: bad luck"])
def test_the_cause_is_the_rank_that_the_others_blame_whoever_ended_first(words, tmp_path):
    script = (f'if [ {RANK} = 1 ]; then until [ -e {tmp_path}/over ]; do :; done; sleep 0.3; echo bad luck >&2; exit 3; fi; '
              f'echo "Traceback (most recent call last):" >&2; echo "{words}" >&2; touch {tmp_path}/over; exit 1')
    ran = run(2, script, "--grace", 30)
    assert ran.returncode == 3, ran.stderr
    assert "penstock: rank 1 failed first: it exited with status 3; its last error: bad luck" in ran.stderr


# ---- signals ----

NOTES_SIGNALS = """
import os, pathlib, signal, sys, time
folder, heard = pathlib.Path(sys.argv[1]), []
for number in (signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, lambda number, frame: heard.append(number))
(folder / ("ready" + os.environ["RANK"])).touch()
until = time.monotonic() + 50
while len(set(heard)) < 2 and time.monotonic() < until:
    time.sleep(0.02)
print("heard", *sorted({signal.Signals(number).name for number in heard}))
"""


def begun(ranks, *command):
    words = [COMMAND, "run", "-np", str(ranks), "--", *map(str, command)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_files(*files):
    deadline = time.monotonic() + 50
    while not all(file.exists() for file in files):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_signals_of_users_go_to_the_program_of_every_rank(tmp_path):
    """Slurm asks for a checkpoint by such a signal, and the run continues."""
    program = tmp_path / "program.py"
    program.write_text(NOTES_SIGNALS)
    run = begun(2, sys.executable, program, tmp_path)
    wait_for_files(tmp_path / "ready0", tmp_path / "ready1")
    run.send_signal(signal.SIGUSR1)
    run.send_signal(signal.SIGUSR2)
    out, err = run.communicate(timeout=SOON)
    assert run.returncode == 0, err
    assert sorted(out.splitlines()) == [f"[{rank}] heard SIGUSR1 SIGUSR2" for rank in range(2)]
    assert err == ""


def test_a_signal_that_comes_before_the_ranks_is_kept_for_them_and_ends_a_program_that_does_not_know_it(tmp_path):
    run = begun(1, "sh", "-c", "while :; do sleep 0.05; done")
    status = pathlib.Path("/proc", str(run.pid), "status")
    blocked = 1 << (signal.SIGUSR1 - 1)
    while not int(status.read_text().split("SigBlk:")[1].split()[0], 16) & blocked:
        assert run.poll() is None
    run.send_signal(signal.SIGUSR2)  # mpirun, which has only just begun, would end by it
    _, err = run.communicate(timeout=SOON)
    assert run.returncode == 128 + signal.SIGUSR2, err
    assert "rank 0 failed first: it was ended by signal 12 (SIGUSR2)" in err, err


@pytest.mark.parametrize("dashes", [(), ("--",)])
def test_what_follows_the_program_is_the_programs(dashes):
    words = ["--config", "none.toml", "-np", "7", "--grace", "3", "-x", "-h", "--", "end"]
    ran = penstock("run", "-np", 1, "--no-prefix", *dashes, "printf", "[%s]", *words)
    assert ran.returncode == 0 and ran.stdout.rstrip("\n") == "".join(f"[{word}]" for word in words), ran.stderr


def test_an_unknown_option_of_run_is_refused():
    ran = penstock("run", "-np", 1, "--confg", "x.toml", "true")
    assert ran.returncode == 2 and "run has no option --confg" in ran.stderr


def test_the_cause_is_the_rank_that_raised_first_not_the_one_that_ended_first(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(f"""
import os, pathlib, sys, time, traceback
folder, rank = pathlib.Path({str(tmp_path)!r}), os.environ["OMPI_COMM_WORLD_RANK"]
def wait_for(name):
    while not (folder / name).exists(): time.sleep(0.01)
if rank == "1":
    try: raise ValueError("the cause")
    except ValueError: traceback.print_exc()
    wait_for("ended"); sys.exit(1)
wait_for("heard"); (folder / "ended").touch()
raise RuntimeError("rank 1 has failed")
""")
    words = [COMMAND, "run", "-np", "2", "--grace", "30", "--", sys.executable, program]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as run:
        while "ValueError: the cause" not in run.stderr.readline():
            assert run.poll() is None
        (tmp_path / "heard").touch()
        _, said = run.communicate(timeout=SOON)
    assert run.returncode == 1
    assert "rank 1 failed first: it exited with status 1; its last error: ValueError: the cause" in said


STUCK = {
    "waiting": "exec sleep 600",
    "spinning": "trap '' TERM; while :; do :; done",
    "stopped": "kill -STOP $$; sleep 600",
    "with children": "setsid sleep 600 & sleep 600",
}


ENDS = {"exit 1": 1, "kill -9 $$": 137, "kill -9 $PPID $$": 1}
# Outside of long runs every way to be stuck and every end once.
PAIRS = list(itertools.product(STUCK, ENDS)) if IS_LONG else list(zip(STUCK, [*ENDS, "exit 1"], strict=True))


@pytest.mark.parametrize("stuck, end", PAIRS)
def test_ranks_that_do_not_end_after_a_failure_are_ended(stuck, end, tmp_path):
    script = (f"echo $$ > {tmp_path}/{RANK}.new; mv {tmp_path}/{RANK}.new {tmp_path}/{RANK}; "
              f"until [ -e {tmp_path}/0 ] && [ -e {tmp_path}/1 ] && [ -e {tmp_path}/2 ]; do sleep 0.05; done; "
              f"if [ {RANK} = 1 ]; then {end}; fi; {STUCK[stuck]}")
    ran = run(3, script, "--grace", 0.3)
    assert ran.returncode == ENDS[end], ran.stderr
    assert ran.seconds < SOON
    assert "rank 1 failed first" in ran.stderr
    assert "ranks 0 and 2 had not ended 0.3 s later (--grace) and were ended" in ran.stderr
    assert_all_end(tmp_path, 3)


def test_a_rank_killed_with_its_shell_is_no_success():
    ran = run(2, f"if [ {RANK} = 1 ]; then kill -9 $PPID $$; fi")
    assert ran.returncode == 1
    assert "rank 1 failed first: it is gone without a report" in ran.stderr


def test_a_program_cannot_forge_a_report():
    # No variable has the token, and a line that looks like a report but has no token is an ordinary line.
    script = (f"env | grep -cE 'penstock-run-[0-9a-f]{{32}}'; echo 'penstock-run ends 1 0' >&2; "
              f"echo 'penstock: this rank ended with status 9 (rank 0)' >&2; [ {RANK} = 0 ] || exit 5")
    ran = run(2, script)
    assert ran.returncode == 5
    assert sorted(ran.stdout.splitlines()) == ["[0] 0", "[1] 0"]
    assert "rank 1 failed first: it exited with status 5" in ran.stderr
    assert run(2, "echo 'penstock: this rank ended with status 9 (rank 0)' >&2").returncode == 0


def started(ranks, folder, **options):
    script = f"echo $$ > {folder}/{RANK}.new; mv {folder}/{RANK}.new {folder}/{RANK}; echo up; exec sleep 600"
    return subprocess.Popen([str(COMMAND), "run", "-np", str(ranks), "--", "sh", "-c", script],
                            start_new_session=True, **options)


@pytest.mark.parametrize("number, whole_group, status", [
    (signal.SIGTERM, True, 143),  # as `timeout` and batch systems do
    (signal.SIGTERM, False, 143), (signal.SIGINT, False, 130)])
def test_an_interrupted_run_leaves_no_rank_behind(number, whole_group, status, tmp_path):
    with started(2, tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as ran:
        assert sorted(ran.stdout.readline() for _ in range(2)) == ["[0] up\n", "[1] up\n"]
        (os.killpg if whole_group else os.kill)(ran.pid, number)
        assert ran.wait(SOON) == status
    assert_all_end(tmp_path, 2)


def test_ctrl_c_at_a_terminal_ends_all_ranks(tmp_path):
    ours, theirs = pty.openpty()
    with started(2, tmp_path, stdin=theirs, stdout=theirs, stderr=theirs,
                 preexec_fn=lambda: __import__("fcntl").ioctl(0, __import__("termios").TIOCSCTTY, 0)) as ran:
        os.close(theirs)
        said = b""
        while said.count(b"up") < 2:
            said += os.read(ours, 1000)
        os.write(ours, b"\x03")
        try:
            while os.read(ours, 1000):
                pass
        except OSError:  # the terminal has no user left
            pass
        assert ran.wait(SOON) == 130
    os.close(ours)
    assert_all_end(tmp_path, 2)


# ---- the environment of ranks ----


def test_ranks_on_other_hosts_get_the_variables_that_they_need(tmp_path):
    # A host that is reached by an agent which, like ssh, passes no variable on.
    agent = tmp_path / "agent"
    agent.write_text('#!/bin/sh\nshift\nexec env -i PATH="$PATH" HOME="$HOME" sh -c "$*"\n')
    agent.chmod(0o755)
    hosts = tmp_path / "hosts"
    hosts.write_text("elsewhere slots=1\n")
    script = 'echo "$PYTHONPATH,$HOROVOD_CYCLE_TIME,$PENSTOCK_ANY,$MINE,$OTHER,$SECRET"'
    ran = run(1, script, "--hosts", hosts, "-x", "MINE", "-x", "OTHER=5", PYTHONPATH="/a", HOROVOD_CYCLE_TIME="2",
              PENSTOCK_ANY="3", MINE="4", SECRET="6", OMPI_MCA_plm_rsh_agent=str(agent))
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "[0] /a,2,3,4,5,\n"


def test_ranks_have_the_variables_of_torchrun():
    ran = run(2, 'echo "$RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE, $MASTER_ADDR"; [ "$MASTER_PORT" -gt 1023 ]',
              RANK="7", WORLD_SIZE="9")
    assert ran.returncode == 0, ran.stderr
    assert sorted(ran.stdout.splitlines()) == ["[0] 0 of 2, 0 of 2, 127.0.0.1", "[1] 1 of 2, 1 of 2, 127.0.0.1"]
    ran = run(1, 'echo "$MASTER_ADDR:$MASTER_PORT"', MASTER_ADDR="mine", MASTER_PORT="4711")
    assert ran.stdout == "[0] mine:4711\n", ran.stderr


def test_each_run_has_a_token_and_a_port_that_no_connection_gets():
    outgoing = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    said = {run(1, 'echo "$PENSTOCK_TOKEN:$MASTER_PORT"').stdout.removeprefix("[0] ").strip() for _ in range(3)}
    for token, port in (each.split(":") for each in said):
        assert len(token) == 32 and int(port) + 1 < outgoing, said
    assert len(said) == 3, said


@pytest.mark.parametrize("name", ["python", "python3"])
def test_python_without_a_path_is_the_checkouts(name):
    checkout = BUILD.parent.parent
    if not (checkout / ".venv/bin/python").exists():
        pytest.skip("this checkout has no .venv")
    code = "import sys, importlib.util as u; print(sys.prefix, u.find_spec('torch') is not None)"
    ran = penstock("run", "-np", 1, "--", name, "-c", code, VIRTUAL_ENV="")
    assert ran.stdout == f"[0] {checkout / '.venv'} True\n", ran.stderr


def test_an_active_environment_and_a_path_are_taken_as_they_are(tmp_path):
    for name in ("python", "python3"):
        (tmp_path / name).write_text("#!/bin/sh\necho the other one\n")
        (tmp_path / name).chmod(0o755)
        path = f"{tmp_path}:{os.environ['PATH']}"
        ran = penstock("run", "-np", 1, "--", name, "-c", "1", VIRTUAL_ENV=str(tmp_path), PATH=path)
        assert ran.stdout == "[0] the other one\n", ran.stderr
        assert penstock("run", "-np", 1, "--", tmp_path / name, VIRTUAL_ENV="").stdout == "[0] the other one\n"


def test_help_tells_of_grace_python_and_statuses():
    text = penstock("run", "--help").stdout
    for word in ("--grace", "--no-prefix", "--hosts", ".venv", "130", "PENSTOCK_*"):
        assert word in text
