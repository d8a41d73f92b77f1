"""FSDP2 through Penstock on several ranks under mpirun: checks are functions of ranks/fsdp.py."""

import pytest
import torch.distributed.fsdp
from launch import succeed, worlds


@pytest.mark.skipif(
    not hasattr(
        getattr(torch.distributed.fsdp, "FSDPModule", None), "set_custom_reduce_scatter"
    ),
    reason="this torch's FSDP2 takes no reduce-scatter of others",
)
@pytest.mark.parametrize("ranks", worlds((2, 4), (4,)))
def test_fsdp2_reduces_its_gradients_through_penstock(ranks):
    succeed("fsdp.py", ranks)
