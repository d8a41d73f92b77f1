"""The surface of Horovod: names, signatures and defaults, and the page that lists them."""

import importlib
import inspect
import re
import threading
from pathlib import Path

import pytest
import torch

import penstock.torch as hvd
from penstock.common import exceptions, util
from penstock.runner.util.threads import in_thread

PAGE = Path(__file__).resolve().parents[3] / "docs" / "horovod.md"
NONE, WORLD = hvd.Compression.none, hvd.global_process_set

# The names that horovod.torch exports; `run` is a name of horovod itself.
HOROVOD = """
    init shutdown is_initialized start_timeline stop_timeline
    rank size local_rank local_size cross_rank cross_size is_homogeneous
    mpi_threads_supported mpi_enabled mpi_built gloo_enabled gloo_built nccl_built ddl_built
    ccl_built cuda_built rocm_built
    Average Sum Adasum Min Max Product Compression
    HorovodInternalError HostsUpdatedInterrupt HorovodVersionMismatchError
    allreduce allreduce_ allreduce_async allreduce_async_
    grouped_allreduce grouped_allreduce_ grouped_allreduce_async grouped_allreduce_async_
    sparse_allreduce_async allgather allgather_async grouped_allgather grouped_allgather_async
    broadcast broadcast_ broadcast_async broadcast_async_ alltoall alltoall_async
    reducescatter reducescatter_async grouped_reducescatter grouped_reducescatter_async
    join barrier poll synchronize
    broadcast_parameters broadcast_optimizer_state broadcast_object allgather_object
    DistributedOptimizer SyncBatchNorm elastic run
    ProcessSet global_process_set add_process_set remove_process_set
""".split()

SCALES = {"prescale_factor": 1.0, "postscale_factor": 1.0}
REDUCED = {"average": None, "name": None, "op": None, **SCALES, "process_set": WORLD}
COMPRESSED = {
    "average": None, "name": None, "compression": NONE, "op": None, **SCALES, "process_set": WORLD,
}  # fmt: skip
NAMED = {"name": None, "process_set": WORLD}
SCATTERED = {"name": None, "op": hvd.Average, "process_set": WORLD, **SCALES}
REQUIRED = inspect.Parameter.empty

# Arguments in order with their defaults.
SIGNATURES = {
    "init": {"comm": None, "process_sets": None},
    "start_timeline": {"file_path": REQUIRED, "mark_cycles": False},
    "allreduce": {"tensor": REQUIRED, **COMPRESSED},
    "grouped_allreduce": {"tensors": REQUIRED, **COMPRESSED},
    **{f"allreduce{form}": {"tensor": REQUIRED, **REDUCED} for form in ("_", "_async", "_async_")},
    **{
        f"grouped_allreduce{form}": {"tensors": REQUIRED, **REDUCED}
        for form in ("_", "_async", "_async_")
    },
    "sparse_allreduce_async": {
        "tensor": REQUIRED, "name": REQUIRED, "op": REQUIRED, "process_set": WORLD,
    },
    **{f"allgather{form}": {"tensor": REQUIRED, **NAMED} for form in ("", "_async")},
    **{f"grouped_allgather{form}": {"tensors": REQUIRED, **NAMED} for form in ("", "_async")},
    **{
        f"broadcast{form}": {"tensor": REQUIRED, "root_rank": REQUIRED, **NAMED}
        for form in ("", "_", "_async", "_async_")
    },
    **{
        f"alltoall{form}": {"tensor": REQUIRED, "splits": None, **NAMED} for form in ("", "_async")
    },
    "reducescatter": {
        "tensor": REQUIRED, "name": None, "compression": NONE, "op": hvd.Average,
        "process_set": WORLD, **SCALES,
    },
    "reducescatter_async": {"tensor": REQUIRED, **SCATTERED},
    "grouped_reducescatter": {
        "tensors": REQUIRED, "name": None, "compression": NONE, "op": hvd.Average,
        "process_set": WORLD, **SCALES,
    },
    "grouped_reducescatter_async": {"tensors": REQUIRED, **SCATTERED},
    "join": {"device": -1},
    "barrier": {"process_set": WORLD},
    "poll": {"handle": REQUIRED},
    "synchronize": {"handle": REQUIRED},
    "broadcast_parameters": {"params": REQUIRED, "root_rank": REQUIRED},
    "broadcast_optimizer_state": {"optimizer": REQUIRED, "root_rank": REQUIRED, "model": None},
    "broadcast_object": {"obj": REQUIRED, "root_rank": 0, "name": None, "process_set": WORLD},
    "allgather_object": {"obj": REQUIRED, "name": None},
    "add_process_set": {"process_set": REQUIRED},
    "remove_process_set": {"process_set": REQUIRED},
    "DistributedOptimizer": {
        "optimizer": REQUIRED, "named_parameters": None, "compression": NONE,
        "backward_passes_per_step": 1, "op": hvd.Average, "gradient_predivide_factor": 1.0,
        "num_groups": 0, "groups": None, "sparse_as_dense": False, "process_set": WORLD,
    },
}  # fmt: skip


def rows():
    """(name, verdict, how) of the page's tables."""
    found = re.findall(r"^\| `([^`]+)` \| ([^|]+) \| ([^|]*)\|$", PAGE.read_text(), re.MULTILINE)
    return [(name, verdict.strip(), how.strip()) for name, verdict, how in found]


def named(name):
    """The object of a name of the page: an attribute of penstock.torch, or a path."""
    if name.startswith("penstock."):
        try:
            return importlib.import_module(name)
        except ImportError:
            module, _, attribute = name.rpartition(".")
            return getattr(importlib.import_module(module), attribute)
    value = hvd
    for part in name.split("."):
        value = getattr(value, part)
    return value


@pytest.mark.parametrize("name", HOROVOD)
def test_every_name_of_horovod_is_there(name):
    assert hasattr(hvd, name) and name in hvd.__all__


@pytest.mark.parametrize("name", SIGNATURES)
def test_arguments_come_in_horovods_order_with_its_defaults(name):
    parameters = inspect.signature(getattr(hvd, name)).parameters
    wanted = SIGNATURES[name]
    # Our own arguments come after Horovod's arguments and can be left out.
    assert list(parameters)[: len(wanted)] == list(wanted)
    for argument, default in wanted.items():
        found = parameters[argument].default
        if name == "broadcast_object" and argument == "obj":
            continue  # optional, because ranks that are not the root ignore it
        assert found is default or found == default, f"{argument} is {found!r} by default"
    for argument in list(parameters)[len(wanted) :]:
        assert parameters[argument].default is not REQUIRED, argument


@pytest.mark.pages
def test_the_page_names_all_of_horovod_and_all_that_is_exported():
    page = {name for name, _, _ in rows()}
    assert len(page) == len(rows()), "a name stands in two rows"
    assert set(HOROVOD) - page == {"elastic"}, "its three names stand there instead"
    assert set(hvd.__all__) - page == {"elastic"}


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
@pytest.mark.pages
def test_the_page_tells_the_truth(row):
    name, verdict, how = row
    value = named(name)
    assert verdict in ("same", "differs", "not yet", "beyond"), verdict
    assert how or verdict in ("same", "not yet"), "how it differs is missing"
    assert (verdict == "beyond") == (name in hvd.__all__ and name not in HOROVOD)
    if verdict == "not yet":
        with pytest.raises(NotImplementedError, match="not there yet, it follows"):
            if name == "Adasum":
                hvd.allreduce(torch.ones(2), op=value)
            else:
                value(lambda: None)


def test_what_is_shown_of_the_package_is_what_users_use():
    shown = [name for name in dir(hvd) if not name.startswith("__")]
    assert shown == sorted(hvd.__all__)
    modules = [name for name in shown if inspect.ismodule(getattr(hvd, name))]
    assert modules == ["elastic"]
    assert len(set(hvd.__all__)) == len(hvd.__all__)


@pytest.mark.parametrize(
    "call, instead",
    [
        (lambda: hvd.run(print, np=2), "penstock run -np 4 -- python train.py"),
        (lambda: hvd.elastic.run(print), "start again from the last checkpoint"),
        (lambda: hvd.elastic.sampler.ElasticSampler([1]), "torch.utils.data.DistributedSampler"),
        (lambda: hvd.elastic.state.TorchState(), "torch.save"),
    ],
)
def test_what_is_not_there_yet_says_what_to_use_instead(call, instead):
    with pytest.raises(NotImplementedError, match="not there yet, it follows in a later") as caught:
        call()
    assert instead in str(caught.value)


def test_constants_are_horovods_numbers():
    values = (hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product)
    assert values == (0, 1, 2, 3, 4, 5)


def test_exceptions_have_horovods_bases():
    assert issubclass(hvd.HorovodInternalError, RuntimeError)
    assert issubclass(hvd.HostsUpdatedInterrupt, RuntimeError)
    assert issubclass(hvd.HorovodVersionMismatchError, ImportError)
    assert exceptions.HostsUpdatedInterrupt(True).skip_sync is True
    error = exceptions.HorovodVersionMismatchError("torch", "2.1", "2.2")
    assert (error.name, error.version, error.installed_version) == ("torch", "2.1", "2.2")
    assert "torch" in str(error) and "2.1" in str(error) and "2.2" in str(error)


def test_build_queries_tell_what_is_there(tmp_path):
    assert hvd.mpi_built() is True and hvd.mpi_enabled() is False
    with pytest.raises(ValueError, match="not been initialized"):
        hvd.mpi_threads_supported()
    assert hvd.nccl_built() == 0 and type(hvd.nccl_built()) is int
    assert hvd.nccl_built() < 2700  # as scripts check it
    for ask in (
        hvd.gloo_enabled, hvd.gloo_built, hvd.ddl_built, hvd.ccl_built, hvd.cuda_built,
        hvd.rocm_built,
    ):  # fmt: skip
        assert ask() is False
    assert util.mpi_built(verbose=True) is True and util.gloo_built(verbose=True) is False
    assert util.extension_available("torch") is True
    assert util.extension_available("tensorflow", verbose=True) is False
    library = tmp_path / "libpenstock.so"
    library.write_text("")
    with util.env(PENSTOCK_LIBRARY=str(library), PENSTOCK_PLUGIN_DIRECTORY=None):
        assert hvd.mpi_built() is False


def test_util_sets_and_restores_the_environment(monkeypatch):
    monkeypatch.setenv("HOROVOD_A", "old")
    monkeypatch.delenv("HOROVOD_B", raising=False)
    import os

    with pytest.raises(KeyError), util.env(HOROVOD_A=None, HOROVOD_B="new"):
        assert "HOROVOD_A" not in os.environ and os.environ["HOROVOD_B"] == "new"
        raise KeyError
    assert os.environ["HOROVOD_A"] == "old" and "HOROVOD_B" not in os.environ
    calls = []

    @util._cache
    def slow(argument):
        calls.append(argument)
        return argument

    assert [slow(1), slow(1), slow(2)] == [1, 1, 2] and calls == [1, 2]
    assert util.is_iterable([]) and not util.is_iterable(3)


def test_in_thread_runs_a_function_with_a_tuple_of_arguments():
    seen = []
    thread = in_thread(seen.append, (3,), name="mine")
    assert isinstance(thread, threading.Thread) and thread.daemon and thread.name == "mine"
    thread.join()
    assert seen == [3]
    with pytest.raises(ValueError, match="tuple"):
        in_thread(seen.append, 3)

    def fails():
        raise KeyError("quietly")

    in_thread(fails, silent=True).join()


def test_names_of_horovods_object_are_the_functions():
    from penstock.torch import mpi_ops

    assert mpi_ops._basics.rank is hvd.rank and mpi_ops._basics.nccl_built is hvd.nccl_built
