"""The module in which Horovod defines the state of an elastic job."""

from __future__ import annotations

from typing import Any

from penstock.torch.elastic.missing import not_yet


class TorchState:
    """Horovod's state of an elastic job. Raises NotImplementedError."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        not_yet(
            "TorchState",
            "save the model, the optimizer and the state of compression (optimizer."
            "compression_state_dict()) with torch.save, and start again from that checkpoint when "
            "hosts change",
        )
