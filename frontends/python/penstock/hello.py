"""Runs README's two lines on the ranks that a launcher has started. `penstock doctor` runs this
program; a user can run it too (torchrun --nproc-per-node 2 -m penstock.hello)."""

from __future__ import annotations

import os
import warnings


def main() -> None:
    import torch
    import torch.distributed as dist

    import penstock.torch as hvd
    from penstock.torch import world

    os.environ.setdefault("PENSTOCK_LOG_LEVEL", "error")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        dist.init_process_group("gloo")
        hvd.init()
        remedy = next((str(one.message).split("; ")[-1] for one in said
                       if "messages go over" in str(one.message)), "")  # fmt: skip
    mean = float(hvd.allreduce(torch.tensor([float(hvd.rank())]), op=hvd.Average))
    expected = (hvd.size() - 1) / 2
    if mean != expected:
        raise RuntimeError(f"{hvd.size()} ranks found the mean {mean}, expected {expected}")
    if hvd.rank() == 0:
        transport = world.transport_of(world.current())
        ending = f"; remedy: {remedy}" if remedy else ""
        print(f"hello: {hvd.size()} ranks have averaged over {transport}{ending}", flush=True)
    hvd.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
