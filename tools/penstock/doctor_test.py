"""`penstock doctor`: what a machine has and lacks, and what of a scheme could run on a device."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import time

import pytest
from command_test import BUILD, COMMAND, ROOT, compile_plugin, penstock

TABLE = "libpenstock_device_cuda.so"
SIMULATED = BUILD / "lib/libpenstock_device_simulated.so"
ON_DEVICE = BUILD / "tests/plugins/on_device/compressor-topk-simulated.so"
needs_simulated_devices = pytest.mark.skipif(
    not SIMULATED.exists(), reason=f"there is no {SIMULATED}: ninja -C {BUILD} penstock_device_simulated"
)


def lines_of(ran, subject):
    return [line for line in json.loads(ran.stdout) if line["subject"].startswith(subject)]


def doctor(installed: pathlib.Path, *arguments, **environment):
    # Without a PATH: neither mpirun nor Python is asked for.
    return subprocess.run(
        [str(installed / "bin/penstock"), "doctor", "--json", *map(str, arguments)], capture_output=True, text=True,
        timeout=300, env={**os.environ, "PATH": "", **environment}, check=False)


@pytest.fixture(scope="module")
def whole():
    return penstock("doctor", "--json", PYTHONPATH=str(ROOT / "frontends/python"))


@pytest.mark.long
def test_doctor_is_content_or_says_how_to_mend(whole):
    ran, lines = whole, json.loads(whole.stdout)
    problems = [line for line in lines if line["state"] == "problem"]
    assert ran.returncode == (1 if problems else 0)
    assert all(line["fix"] for line in lines if line["state"] in ("warning", "problem"))
    assert {"mpirun", "network", "cuda", "libpenstock", "plugins"} <= {line["subject"] for line in lines}
    assert {"torch", "python"} & {line["subject"] for line in lines}


def test_doctor_names_a_plugin_path_that_is_no_folder(alone):
    (alone / "file").write_text("")
    (alone / "folder").mkdir()
    named = [alone / "file", alone / "none", alone / "folder"]
    ran = doctor(alone, PENSTOCK_PLUGIN_DIRECTORY=":".join(map(str, named)))
    states = {line["found"].split(":")[0]: line["state"] for line in json.loads(ran.stdout)
              if line["subject"] == "plugin path"}
    assert [states[str(path)] for path in named] == ["warning", "warning", "ok"]
    assert "warning" not in [state for path, state in states.items() if not path.startswith(str(alone))]


def test_what_doctor_has_started_ends_with_it(tmp_path):
    launcher, started = tmp_path / "mpirun", tmp_path / "pid"
    launcher.write_text(f"#!/bin/sh\necho $$ > {started}.new\nmv {started}.new {started}\nexec sleep 60\n")
    launcher.chmod(0o755)
    path = f"{tmp_path}:/usr/bin:/bin"
    with subprocess.Popen([COMMAND, "doctor"], stdout=subprocess.DEVNULL, env={**os.environ, "PATH": path}) as ran:
        wait_for(started.exists)
        ran.terminate()
    wait_for(lambda: not pathlib.Path(f"/proc/{started.read_text().strip()}").exists())


def wait_for(happens):
    end = time.monotonic() + 60
    while not happens():
        assert time.monotonic() < end, "nothing happened within 60 s"
        time.sleep(0.02)


def test_doctor_tells_how_much_shared_memory_ranks_may_take(alone):
    (line,) = lines_of(doctor(alone), "shared memory")
    assert re.fullmatch(r"/dev/shm has \d+ of \d+ MiB free: for \d+ ranks over ucx, \d+ over mpi", line["found"])
    assert ("--shm-size" in line["fix"]) == (line["state"] == "warning")


def test_doctor_imports_the_package_and_says_what_fails(tmp_path):
    # An active environment whose Python lacks the package: `penstock run` would take it too.
    python = tmp_path / "python3"
    python.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'torch'\" >&2; exit 1\n")
    python.chmod(0o755)
    ran = penstock("doctor", "--json", VIRTUAL_ENV=str(tmp_path), PATH=f"{tmp_path}:{os.environ['PATH']}")
    (line,) = [line for line in json.loads(ran.stdout) if line["subject"] == "torch"]
    assert ran.returncode == 1 and line["state"] == "problem" and "No module named 'torch'" in line["found"]
    assert "tools/setup" in line["fix"]


def test_doctor_starts_two_ranks_under_each_launcher_and_calls_ok_only_what_ran(whole):
    lines = {line["subject"]: line for line in json.loads(whole.stdout)}
    if "torchrun" not in lines:
        pytest.skip("python3 of this shell lacks torch: " + lines["torch"]["found"])
    assert lines["torchrun"]["state"] == "ok" and "2 ranks have averaged over ucx" in lines["torchrun"]["found"]
    assert lines["penstock run"]["state"] == "ok" and "2 ranks have averaged over mpi" in lines["penstock run"]["found"]
    assert {lines[name]["state"] for name in ("processor", "memory")} == {"-"}  # nothing ran there


# Says what a Python with torch says, and what two ranks under torchrun say.
SUBSTITUTE = """#!/bin/sh
case "$*" in
  *torch.distributed.run*) echo "hello: 2 ranks have averaged over ucx" ;;
  *) echo "$0 2.9.0 0.1.0" ;;
esac
"""


def test_doctor_misses_mpirun(tmp_path):
    # The checkout's Python would start ranks under torchrun for 15 s of a core. `whole` does that.
    (tmp_path / "python3").write_text(SUBSTITUTE)
    (tmp_path / "python3").chmod(0o755)
    ran = penstock("doctor", PATH=str(tmp_path), PYTHONPATH=str(ROOT / "frontends/python"), VIRTUAL_ENV=str(tmp_path))
    assert ran.returncode == 0 and re.search(r"warning +mpirun", ran.stdout) and "openmpi" in ran.stdout


# ---- devices ----


@pytest.fixture
def installed(alone):
    """With a simulated device for the CUDA part."""
    shutil.copy(SIMULATED, alone / "lib" / TABLE)
    return alone


def test_doctor_without_a_table_says_that_there_is_only_the_cpu(alone):
    (line,) = lines_of(doctor(alone), "cuda")
    assert TABLE in line["found"] and "this build knows the CPU only" in line["found"]
    assert line["state"] == ("warning" if line["fix"] else "-")  # a warning where the driver has devices


@needs_simulated_devices
def test_doctor_names_the_devices_that_the_runtime_finds(installed):
    ran = doctor(installed, PENSTOCK_SIMULATED_DEVICES="2")
    found = lines_of(ran, "cuda")
    assert [line["device"]["name"] for line in found] == ["cuda:0", "cuda:1"]
    for line in found:
        assert line["state"] == "ok" and line["device"]["memory_bytes"] > 0
        assert line["device"]["model"] in line["found"] and "compute capability" in line["found"]
    # With a device the scheme of a run that is given none is looked at.
    (scheme,) = lines_of(ran, "scheme")
    assert scheme["subject"] == "scheme" and not scheme["on_device"]
    (why,) = scheme["through_host_memory"]
    assert why == 'compressor "none" works on the CPU only (its build or its options)'


@needs_simulated_devices
def test_doctor_warns_where_all_streams_of_a_device_share_a_queue(installed):
    one = {"PENSTOCK_SIMULATED_DEVICES": "1", "CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    (line,) = lines_of(doctor(installed, **one), "cuda queues")
    assert line["state"] == "warning" and "CUDA_DEVICE_MAX_CONNECTIONS=1" in line["found"]
    assert "NCCL_LAUNCH_ORDER_IMPLICIT=1" in line["fix"]
    for better in ({"CUDA_DEVICE_MAX_CONNECTIONS": "8"}, {"NCCL_LAUNCH_ORDER_IMPLICIT": "1"}, {"PENSTOCK_SIMULATED_DEVICES": "0"}):
        assert not lines_of(doctor(installed, **{**one, **better}), "cuda queues")


@needs_simulated_devices
def test_doctor_gives_the_table_s_own_words_where_no_device_is_found(installed):
    (line,) = lines_of(doctor(installed, PENSTOCK_SIMULATED_DEVICES="0"), "cuda")
    assert line["state"] == "warning" and "no CUDA device can be used: the driver finds no device" in line["found"]
    assert "CUDA_VISIBLE_DEVICES" in line["fix"]
    (installed / "lib" / TABLE).write_text("no library")
    (line,) = lines_of(doctor(installed), "cuda")
    assert line["state"] == "warning" and "cannot be loaded" in line["found"] and line["fix"]


def test_doctor_says_what_of_a_scheme_goes_through_host_memory_and_why(alone):
    ran = doctor(alone, ROOT / "conf/dgc-hierarchical.toml", ROOT / "conf/adaq.toml")
    by_hosts, adaq = lines_of(ran, "scheme")
    assert by_hosts["subject"] == f"scheme {ROOT}/conf/dgc-hierarchical.toml"
    (why,) = by_hosts["through_host_memory"]
    assert why == "the ranks of a host add it in host memory, because no transport.device is named" and why in by_hosts["found"]
    assert not adaq["on_device"]
    assert adaq["through_host_memory"]['compressor "adaq" works on the CPU only (its build or its options)'][0] == "matrices"
    assert "gradients that go through host memory, there and back: matrices, convolutions" in adaq["found"]


VECTORS_ON_THE_CPU = '[[rule]]\nmatch = { dims = 1 }\ncompressor = "adaq"\nmemory = "residual"\n'


@pytest.mark.parametrize("kind", ["LOSSY_ON_CUDA", "ALSO_ON_CUDA"])
def test_doctor_knows_what_works_on_a_device_and_how_it_is_sent(kind, alone):
    compile_plugin(alone, kind)
    file = alone / "bad.toml"
    file.write_text('[scheme]\ncompressor = "bad"\ncollective = "loopback"\n' + VECTORS_ON_THE_CPU)
    (line,) = lines_of(doctor(alone, "--plugin-path", alone, file), "scheme")
    staged = line["through_host_memory"]
    assert line["state"] == "-" and staged.pop('compressor "adaq" works on the CPU only (its build or its options)') == ["vectors"]
    if kind == "LOSSY_ON_CUDA":
        assert line["on_device"] == ["matrices", "convolutions"] and not staged
        assert "their payloads go through pinned host memory" in line["found"]
    else:
        ((why, what),) = staged.items()
        assert what == ["matrices", "convolutions"] and "no transport.device is named" in why


def test_doctor_says_which_sums_a_transport_between_devices_leaves_to_host_memory(alone):
    compile_plugin(alone, "ALSO_ON_CUDA")
    file = alone / "bad.toml"
    file.write_text('[scheme]\ncompressor = "bad"\ncollective = "loopback"\n[transport]\ndevice = "mpi"\n')
    (line,) = lines_of(doctor(alone, "--plugin-path", alone, file), "scheme")
    (why,) = line["through_host_memory"]
    assert 'uncompressed and whole, and transport.device = "mpi" carries no sums' in why and not line["from_device_to_device"]


@pytest.mark.skipif(not ON_DEVICE.exists(), reason=f"there is no {ON_DEVICE}: tools/test --all builds it")
def test_doctor_says_what_goes_over_a_library_that_a_run_will_ask(alone):
    file = alone / "pairs.toml"
    scheme = ('[scheme]\ncompressor = "topk-simulated"\nmemory = "residual-simulated"\ncollective = "loopback"\n'
              '[transport]\ndevice = "mpi"\n[collective.mpi]\ndevice_memory = ')
    file.write_text(scheme + '"auto"\n')
    (line,) = lines_of(doctor(alone, "--plugin-path", ON_DEVICE.parent, file), "scheme")
    assert line["on_device"] == line["from_device_to_device"] == ["matrices", "convolutions", "vectors"]
    assert "over mpi (if its library accepts device memory: a run asks the library" in line["found"]
    file.write_text(scheme + '"no"\n')
    (line,) = lines_of(doctor(alone, "--plugin-path", ON_DEVICE.parent, file), "scheme")
    assert line["state"] == "problem" and 'transport.device = "mpi" does not carry memory of CUDA devices' in line["found"]


def test_doctor_names_what_is_wrong_with_a_scheme(alone):
    file = alone / "wrong.toml"
    file.write_text('[scheme]\ncompressor = "topkk"\n')
    ran = doctor(alone, file)
    (line,) = lines_of(ran, "scheme")
    assert ran.returncode == 1 and line["state"] == "problem"
    assert "topk" in line["found"] and "penstock config check" in line["fix"]
