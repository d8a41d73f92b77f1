"""Collective operations on torch tensors, one file per operation. Users import
``penstock.torch.mpi_ops``."""
