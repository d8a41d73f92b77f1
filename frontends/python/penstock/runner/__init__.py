"""Import paths of Horovod's launcher that scripts use; jobs are started by ``penstock run``."""
