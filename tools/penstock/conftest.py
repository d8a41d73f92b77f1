"""What several tests of the command need."""

import shutil

import pytest
from command_test import BUILD, COMMAND


@pytest.fixture
def alone(tmp_path):
    """The command and the runtime in folders of their own. No Python lies beside them, so `penstock doctor` starts no
    ranks under the launchers, which takes 15 s of a core."""
    for folder in ("bin", "lib"):
        (tmp_path / folder).mkdir()
    shutil.copy(COMMAND, tmp_path / "bin/penstock")
    shutil.copy(BUILD / "lib/libpenstock.so.0", tmp_path / "lib")
    (tmp_path / "lib/penstock").symlink_to(BUILD / "lib/penstock")
    return tmp_path
