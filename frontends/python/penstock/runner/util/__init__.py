"""Helpers under the names of Horovod's launcher."""
