"""The end of DistributedDataParallel's buckets, without a run."""

from types import SimpleNamespace

from penstock.common.exceptions import HorovodInternalError
from penstock.torch.bucket_exchange import BucketExchange


def test_a_bucket_whose_gradients_fail_one_after_the_other_is_finished_once():
    exchange = BucketExchange("", None, None)
    ended = []
    bucket = SimpleNamespace(left=3, buffer="the mean", finish=ended.append)
    exchange._awaited = dict.fromkeys(range(3), bucket)
    gone = HorovodInternalError("rank 2 is gone")
    exchange.arrived([0], None)
    exchange.arrived([1], gone)
    exchange.arrived([2], gone)
    assert ended == [gone]
