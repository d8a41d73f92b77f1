"""Tensors whose memory does not hold their values as they are, through every operation and every
door of gradients."""

import pytest
import torch
from launch import succeed

from penstock.common.devices import HOST, Place
from penstock.torch.tensors import may_be_written, readable_by_address


def test_each_case_that_went_wrong_is_right_or_refused():
    succeed("by_address.py", 2)


def test_tensors_with_every_property_go_through_every_door_or_are_refused():
    succeed("every_kind.py", 2)


def test_a_plain_tensor_is_readable_by_address():
    whole = torch.ones(4, 6)
    for tensor in (whole, whole[1:3], whole[:0], torch.tensor(1.0), whole.bool(), whole.cfloat()):
        assert readable_by_address(tensor)
        assert readable_by_address(tensor, tensor.dtype, tensor.numel())
    parameter = torch.nn.Parameter(whole)
    assert readable_by_address(parameter) and readable_by_address(parameter.detach())


@pytest.mark.parametrize(
    "tensor",
    (
        torch.ones(4, 6).t(),
        torch.ones(1).expand(6),
        torch._neg_view(torch.ones(6)),
        torch.ones(6, dtype=torch.complex64).conj(),
        torch._efficientzerotensor(6),
        torch.ones(6, device="meta"),
        torch.eye(6).to_sparse(),
        torch.eye(6).to_sparse_csr(),
        torch.quantize_per_tensor(torch.ones(6), 1.0, 0, torch.qint8),
    ),
)
def test_a_tensor_whose_memory_means_something_else_is_not(tensor):
    assert not readable_by_address(tensor)


def test_a_tensor_of_another_type_size_or_place_is_not_readable_as_the_core_knows_it():
    tensor = torch.ones(6)
    assert not readable_by_address(tensor, torch.float64)
    assert not readable_by_address(tensor, torch.float32, 5)
    assert readable_by_address(tensor, torch.float32, 6, HOST)
    assert not readable_by_address(tensor, torch.float32, 6, Place(2, 0))


def test_elements_that_share_memory_cannot_be_written():
    whole = torch.ones(24)
    for tensor in (whole.view(4, 6).t(), whole[::2], whole[:1].expand(1, 1), whole[:0].expand(3, 0)):
        assert may_be_written(tensor)
    for size, stride in (((2, 3), (0, 1)), ((2, 3), (1, 1)), ((3, 2, 2), (4, 3, 3)), ((5,), (0,))):
        assert not may_be_written(whole.as_strided(size, stride))
    assert not may_be_written(torch._efficientzerotensor(6))
