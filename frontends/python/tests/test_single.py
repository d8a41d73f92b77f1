"""One process, no launcher: the arguments that DistributedOptimizer accepts, and a world of one."""

import json
import textwrap
import warnings

import pytest
import torch
from launch import run_python

import penstock._library as c
import penstock.torch as hvd
from penstock._structures import packer
from penstock.common.exceptions import HorovodInternalError, PenstockError, exception_from
from penstock.torch.checks import check_groups, has_momentum, name_parameters
from penstock.torch.fsdp import reduce_through_penstock


@pytest.fixture(scope="module")
def world():
    hvd.init()
    yield
    hvd.shutdown()


@pytest.fixture
def model():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))


def sgd(model, **options):
    return torch.optim.SGD(model.parameters(), **{"lr": 0.1, **options})


def train(optimizer, model, steps=4):
    for step in range(steps):
        optimizer.zero_grad()
        generator = torch.Generator().manual_seed(step)
        model(torch.randn(8, 6, generator=generator)).square().mean().backward()
        optimizer.step()


def python(code, **environment):
    """Runs code in a process of its own."""
    return run_python("-c", textwrap.dedent(code), **environment)


# ---- the C door's structures ----


def test_structures_are_packed_as_ctypes_lays_them_out():
    tensor = c.Tensor(data=1, numel=5, dtype=6, device_type=-7, device_id=8, flags=9)
    tensor.n_dims = 4
    fields = (tensor.struct_size, 1, 0, 0, 4, 5, 6, -7, 8, 9)
    assert packer(c.Tensor).pack(*fields) == bytes(tensor)
    declaration = c.OperationDeclaration(n_splits=2, n_ranks=3, prescale=0.5, postscale=2.5)
    declaration.name.size, declaration.root, declaration.average = 11, 12, 1
    fields = (declaration.struct_size, 0, 11, 0, 0, 0, 2, 0, 3, 0.5, 2.5, 0, 0, 12, 1)
    assert packer(c.OperationDeclaration).pack(*fields) == bytes(declaration)


# ---- before init ----


def test_everything_that_needs_the_world_says_so_before_init():
    for ask in (
        hvd.rank,
        hvd.size,
        hvd.local_rank,
        hvd.local_size,
        hvd.cross_rank,
        hvd.cross_size,
        hvd.is_homogeneous,
    ):
        with pytest.raises(ValueError, match="Horovod has not been initialized; use hvd.init()."):
            ask()
    with pytest.raises(ValueError, match="not been initialized"):
        hvd.allreduce(torch.ones(1))
    assert not hvd.is_initialized()
    hvd.shutdown()  # a second call is allowed


def test_init_refuses_what_it_does_not_offer():
    with pytest.raises(NotImplementedError, match="comm"):
        hvd.init(comm=[0])
    with pytest.raises(ValueError, match="dynamic"):
        hvd.init(process_sets="static")
    with pytest.raises(ValueError, match="expected only config"):
        hvd.init(config="a.toml", config_text="[scheme]")
    with pytest.raises(ValueError, match="config is an empty text"):
        hvd.init(config="")
    assert not hvd.is_initialized()


def test_a_broken_configuration_is_an_error_with_its_place():
    done = python(
        """
        import penstock.torch as hvd
        for text in ("[scheme", "[scheme]\\ncompresor = 'topk'", "[scheme]\\ncompressor = 'tokp'"):
            try:
                hvd.init(config_text=text)
            except (ValueError, hvd.HorovodInternalError) as error:
                print("caught", error)
        try:
            hvd.init(config="/nonexistent/scheme.toml")
        except (ValueError, hvd.HorovodInternalError) as error:
            print("caught", error)
        """
    )
    assert done.returncode == 0, done.stderr
    caught = done.stdout.splitlines()
    assert done.stdout.count("caught") == 4, done.stdout
    assert (
        "compressor" in done.stdout
        and "topk" in done.stdout
        and "/nonexistent/scheme.toml" in done.stdout
    ), caught


# ---- exceptions, and the structures of the library ----


def test_statuses_become_exceptions():
    assert type(exception_from(1, "x")) is ValueError
    for code in range(2, 13):
        error = exception_from(code, "what happened")
        assert isinstance(error, HorovodInternalError) and isinstance(error, RuntimeError)
        assert error.code == code and str(error) == "what happened"
    assert PenstockError is HorovodInternalError


def test_structures_tell_their_size():
    for kind in (
        c.Tensor,
        c.RuntimeOptions,
        c.Topology,
        c.GradientDeclaration,
        c.SetDeclaration,
        c.Counters,
    ):
        assert kind().struct_size == c.ctypes.sizeof(kind)
    assert c.Tensor(numel=4).struct_size == c.ctypes.sizeof(c.Tensor)


# ---- a world of one ----


def test_a_world_of_one_has_the_whole_surface(world, tmp_path):
    assert (hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size()) == (0, 1, 0, 1)
    assert hvd.is_homogeneous()
    x = torch.arange(5.0)
    assert (
        torch.equal(hvd.allreduce(x), x)
        and torch.equal(hvd.allgather(x), x)
        and torch.equal(hvd.broadcast(x, 0), x)
    )
    assert hvd.allgather_object({"a": 1}) == [{"a": 1}] and hvd.broadcast_object("x") == "x"
    hvd.barrier()
    assert isinstance(hvd.report(), dict)
    trace = tmp_path / "trace.json"
    hvd.start_timeline(str(trace))
    hvd.allreduce(x)
    hvd.stop_timeline()
    assert isinstance(json.loads(trace.read_text()), (list, dict))


def test_init_again_does_nothing_and_a_second_configuration_is_refused(world):
    hvd.init()
    with pytest.raises(ValueError, match="shutdown"):
        hvd.init(config_text="[scheme]\n")


def test_one_rank_trains_as_without_penstock(world, model):
    plain = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    plain.load_state_dict(model.state_dict())
    train(hvd.DistributedOptimizer(sgd(model), model.named_parameters()), model)
    train(sgd(plain), plain)
    for p, q in zip(model.parameters(), plain.parameters()):
        assert torch.equal(p, q)


def test_compression_acts_in_a_world_of_one_too(world, model):
    scheme = '[scheme]\ncompressor = "topk"\nmemory = "none"\n[compressor.topk]\ndensity = 0.1\n'
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters(), scheme=scheme)
    model(torch.ones(3, 6)).sum().backward()
    optimizer.synchronize()
    kept = sum(int(p.grad.count_nonzero()) for p in model.parameters())
    total = sum(p.numel() for p in model.parameters())
    assert 0 < kept <= total * 0.1 + len(list(model.parameters())), (
        f"{kept} of {total} entries came back"
    )
    with optimizer.skip_synchronize():
        optimizer.step()
    counters = optimizer.counters()
    assert 0 < counters["payload_bytes"] < counters["gradient_bytes"]
    assert counters["moved_bytes"] == counters["dense_moved_bytes"] == 0  # there is no other rank


ABSOLUTE_SCALES = {
    "votes": '[scheme]\ncompressor = "signsgd"\n',
    "threshold": '[scheme]\ncompressor = "threshold"\nmemory = "residual"\n'
    "[compressor.threshold]\nthreshold = 0.05\ncapacity = 1.0\n",
    "tbq": '[scheme]\ncompressor = "tbq"\nmemory = "residual"\n'
    "[compressor.tbq]\nthreshold = 0.05\n",
    "inceptionn": '[scheme]\ncompressor = "inceptionn"\n',
    "clipping": '[scheme]\ncompressor = "none"\nmemory = "dgc"\n'
    '[memory.dgc]\nclipping = "value"\nclip = 0.05\n',
}


@pytest.mark.parametrize("scheme", ABSOLUTE_SCALES.values(), ids=ABSOLUTE_SCALES.keys())
def test_predividing_changes_no_method_with_an_absolute_scale(world, model, scheme):
    averages = []
    for factor in (1.0, 8.0):  # a power of two, so the division does not round
        optimizer = hvd.DistributedOptimizer(
            sgd(model), model.named_parameters(), gradient_predivide_factor=factor, scheme=scheme
        )
        for step in range(3):
            if step == 2:
                optimizer.set_grad_scale(4.0)
            optimizer.zero_grad()
            generator = torch.Generator().manual_seed(step)
            loss = model(torch.randn(8, 6, generator=generator)).square().mean()
            (loss * (4.0 if step == 2 else 1.0)).backward()
            optimizer.synchronize()
            averages.append([p.grad.clone() for p in model.parameters()])
            optimizer.skip_step()
        optimizer.close()
    assert any(bool(gradient.any()) for gradient in averages[0])
    for plain, predivided in zip(averages[:3], averages[3:]):
        for one, other in zip(plain, predivided):
            assert torch.equal(one, other), (one, other)


def test_existing_state_and_options_are_taken_over(world, model):
    inner = sgd(model, momentum=0.9)
    train(inner, model, 2)
    optimizer = hvd.DistributedOptimizer(inner, model.named_parameters())
    assert type(optimizer).__name__ == "SGD" and isinstance(optimizer, torch.optim.SGD)
    assert optimizer.state[model[0].weight]["momentum_buffer"].any()
    assert optimizer.param_groups[0]["momentum"] == 0.9
    with pytest.raises(ValueError, match="no further parameter groups"):
        optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))]})


def test_frozen_parameters_take_no_part(world, model):
    model[0].weight.requires_grad_(False)
    before = model[0].weight.clone()
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters())
    train(optimizer, model)
    assert torch.equal(model[0].weight, before) and model[0].weight.grad is None
    assert "0.weight" not in json.dumps(optimizer.report())


def test_an_optimizer_outlives_no_shutdown(model):
    done = python(
        """
        import torch, penstock.torch as hvd
        hvd.init()
        p = torch.nn.Parameter(torch.ones(3))
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([p], lr=0.1))
        p.sum().backward(); optimizer.step(); optimizer.zero_grad()
        hvd.shutdown()
        p.sum().backward()
        try:
            optimizer.step()
        except ValueError as error:
            print("caught", error)
        """
    )
    assert done.returncode == 0, done.stderr
    assert "caught" in done.stdout and "shut down" in done.stdout


# ---- arguments ----


def test_named_parameters_are_checked(world, model):
    def wrap(named):
        return hvd.DistributedOptimizer(sgd(model), named_parameters=named)

    with pytest.raises(ValueError, match="sequence of tuples"):
        wrap([p for p in model.parameters()])
    twice = [("same", p) for p in model.parameters()]
    with pytest.raises(ValueError, match="must be unique. Found duplicates: same"):
        wrap(twice)
    named = list(model.named_parameters())
    with pytest.raises(ValueError, match=str(id(named[-1][1]))):
        wrap(named[:-1])
    extra = torch.nn.Parameter(torch.ones(2))
    train(wrap([*named, ("not the optimizer's", extra)]), model, 1)


def test_generated_names_are_unique_over_groups():
    groups = [{"params": [torch.ones(1), torch.ones(2)]}, {"params": [torch.ones(3)]}]
    names = [name for name, _ in name_parameters(groups, None)]
    assert names == ["allreduce.noname.0.0", "allreduce.noname.0.1", "allreduce.noname.1.0"]


def test_other_arguments_are_checked(world, model):
    def wrap(**options):
        return hvd.DistributedOptimizer(sgd(model), model.named_parameters(), **options)

    for passes in (0, -1):
        with pytest.raises(ValueError, match="backward_passes_per_step must be > 0"):
            wrap(backward_passes_per_step=passes)
    with pytest.raises(
        ValueError, match="gradient_predivide_factor not supported with op != Average"
    ):
        wrap(op=hvd.Sum, gradient_predivide_factor=2.0)
    with pytest.raises(ValueError, match="Average or Sum"):
        wrap(op=hvd.Max)
    with pytest.raises(ValueError, match="compression"):
        wrap(compression=3)
    with pytest.raises(ValueError, match="process_set"):
        wrap(process_set=object())
    with pytest.raises((ValueError, HorovodInternalError), match="nothing"):
        wrap(scheme='[scheme]\ncompressor = "nothing"\n')


def test_groups_are_checked():
    a, b = torch.ones(1), torch.ones(1)
    check_groups(0, [[a], [b]])
    check_groups(0, 3)
    for wrong in (0, -1, "x", 2.5, True):
        with pytest.raises(ValueError, match="groups should be a positive integer"):
            check_groups(0, wrong)
    with pytest.raises(ValueError, match="must consist of torch.Tensor"):
        check_groups(0, [[a, 3]])
    with pytest.raises(ValueError, match="only appear once"):
        check_groups(0, [[a, b], [a]])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_groups(2, None)
    assert [w.category for w in caught] == [DeprecationWarning]


def test_momentum_of_the_optimizer_is_seen():
    p = [torch.nn.Parameter(torch.ones(1))]
    assert not has_momentum(torch.optim.SGD(p, lr=0.1).param_groups)
    assert has_momentum(torch.optim.SGD(p, lr=0.1, momentum=0.9).param_groups)
    assert has_momentum(torch.optim.Adam(p).param_groups)
    assert not has_momentum(torch.optim.Adam(p, betas=(0.0, 0.9)).param_groups)


def test_the_first_fsdp_is_told_to_use_the_second(tmp_path):
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # one rank has no shards
            sharded = torch.distributed.fsdp.FullyShardedDataParallel(
                torch.nn.Linear(4, 2), device_id=torch.device("cpu")
            )
        sharded.register_comm_hook(hvd.PenstockState("conf/topk-residual.toml"), hvd.ddp_hook)
        with pytest.raises(NotImplementedError, match=r"FSDP1.*fully_shard\(model\)"):
            sharded(torch.ones(3, 4)).sum().backward()
        with pytest.raises(ValueError, match=r"FSDP1.*fully_shard\(model\)"):
            reduce_through_penstock(sharded)
        with pytest.raises(NotImplementedError, match="FSDP1"):  # what several ranks hand over
            hvd.ddp_hook(hvd.PenstockState(), torch.ones(4), torch.ones(2))
    finally:
        torch.distributed.destroy_process_group()
