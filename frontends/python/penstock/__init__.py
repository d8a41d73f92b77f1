"""Penstock: gradient compression and communication scheduling for data-parallel training.

The frontend for torch is ``penstock.torch``; a Horovod script says ``import penstock.torch as
hvd``.
"""

__version__ = "0.1.0"
