"""The module in which Horovod defines its sampler."""

from __future__ import annotations

from typing import Any

from penstock.torch.elastic.missing import not_yet


class ElasticSampler:
    """Horovod's sampler for an elastic job. Raises NotImplementedError."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        not_yet(
            "ElasticSampler",
            "use torch.utils.data.DistributedSampler(dataset, num_replicas=hvd.size(), "
            "rank=hvd.rank()), and start again from a checkpoint when hosts change",
        )
