"""FSDP2 through Penstock on several ranks under mpirun: checks are functions of ranks/fsdp.py and
ranks/fsdp_shapes.py. The flat buffer's layout is compared with torch's own, without ranks."""

from types import SimpleNamespace

import pytest
import torch.distributed.fsdp
from launch import run_ranks, succeed
from long_runs import cases

pytestmark = pytest.mark.skipif(
    not hasattr(
        getattr(torch.distributed.fsdp, "FSDPModule", None), "set_custom_reduce_scatter"
    ),
    reason="this torch's FSDP2 takes no reduce-scatter of others",
)


@pytest.mark.parametrize("ranks", cases((2, 4), (4,)))
def test_fsdp2_reduces_its_gradients_through_penstock(ranks):
    succeed("fsdp.py", ranks)


@pytest.mark.parametrize("ranks", cases((2, 3, 4), (3,)))
def test_shards_of_fsdp2_keep_their_shapes(ranks):
    succeed("fsdp_shapes.py", ranks)


@pytest.mark.parametrize("ranks", cases((2, 3, 4), (3,)))
def test_parameters_that_only_some_steps_use_keep_their_residual(ranks):
    succeed("fsdp_absent.py", ranks)


def test_ranks_that_use_different_parameters_are_all_told():
    done = run_ranks("fsdp_absent.py", 2, "unequal")
    assert done.stdout.count("was told") == 2, done.stdout


SHAPES = [(7, 3), (5,), (2, 4, 3, 3), (1, 6), (8,)]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_shards_lie_where_torch_puts_them(ranks):
    from penstock.torch.fsdp_shards import Layout

    whole = [torch.rand(shape) for shape in SHAPES]
    each = sum(-(-one.shape[0] // ranks) * one[0:1].numel() for one in whole)
    flat = torch.full((ranks * each,), -1.0)
    torch.ops.fsdp.chunk_cat(whole, dim=0, num_chunks=ranks, out=flat.view(ranks, -1))
    parameters = [
        SimpleNamespace(
            _orig_size=one.shape,
            _param_fqn=f"p{number}",
            fsdp_placement=SimpleNamespace(dim=0),
            sharded_param=SimpleNamespace(requires_grad=True),
        )
        for number, one in enumerate(whole)
    ]
    groups = [SimpleNamespace(fsdp_params=parameters)]
    shards = Layout(groups, range(10, 10 + ranks), len(flat), None).shards
    expected = {
        f"p{number} of rank {10 + place}": (10 + place, rows)
        for number, one in enumerate(whole)
        for place, rows in enumerate(one.chunk(ranks))
    }
    assert {one.name for one in shards} == set(expected)
    taken = torch.zeros(len(flat))
    for one in shards:
        owner, rows = expected[one.name]
        end = one.first + rows.numel()
        assert one.owner == owner and one.shape == rows.shape
        assert torch.equal(flat[one.first : end].view(one.shape), rows)
        taken[one.first : end] += 1
    assert taken.max() == 1
    assert not flat[taken == 0].any(), "the rest is padding, which is zero"
