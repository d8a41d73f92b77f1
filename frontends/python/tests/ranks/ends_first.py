"""Rank 0 ends before the others, which train on as a process set and save.

ends_first.py HOW: rank 0 calls shutdown ("shutdown"), its script ends ("exit"), or it gets Ctrl-C while it
stays ("interrupted").
"""

import os
import signal
import sys
import threading
import time

import torch

import penstock.torch as hvd
from penstock.torch import HorovodInternalError

signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background of a shell ignore it
HOW = sys.argv[1]
LONGER_S = 8.0  # than rank 0 once stayed

others = hvd.ProcessSet([1, 2])
hvd.init(process_sets=[others], config_text="[runtime]\nstall_warning_s = 2.0\n")
rank = hvd.rank()
model = torch.nn.Linear(4, 2)
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), 0.1), named_parameters=model.named_parameters()
)
model(torch.ones(3, 4)).sum().backward()
optimizer.step()

if rank == 0:
    began = time.monotonic()
    if HOW == "interrupted":
        threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            hvd.shutdown()
        except KeyboardInterrupt:
            print(f"rank 0 was interrupted, after {time.monotonic() - began:.0f} s", flush=True)
    if HOW == "shutdown":
        hvd.shutdown()
        print(f"rank 0 stayed for {time.monotonic() - began:.0f} s", flush=True)
    sys.exit()

began = time.monotonic()
try:
    while time.monotonic() - began < LONGER_S:
        total = hvd.allreduce(torch.full((3,), float(rank)), op=hvd.Sum, process_set=others)
        assert total.tolist() == [3.0] * 3
        time.sleep(0.2)
    assert optimizer.state_dict()
    hvd.shutdown()
    print(f"rank {rank} saved", flush=True)
except HorovodInternalError as error:
    print(f"rank {rank} got: {error}", flush=True)
