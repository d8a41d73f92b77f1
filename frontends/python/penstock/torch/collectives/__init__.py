"""Collective operations on torch tensors, a file per operation; ``penstock.torch.mpi_ops`` is what
users import."""
