"""LocalSteps: a rank ends by an exception, long before the next exchange."""

import time

from local_steps_support import make_model, train, wrap

import penstock.torch as hvd
from penstock.torch import HorovodInternalError

hvd.init()
model = make_model()
optimizer = wrap(model, every=1000)
try:
    for step in range(400):
        train(model, optimizer, step, step + 1)
        if step == 3 and hvd.rank() == hvd.size() - 1:
            raise RuntimeError("the disk is full")
        time.sleep(0.05)
except HorovodInternalError as error:
    print(f"rank {hvd.rank()} stopped after step {step}: {error}", flush=True)
