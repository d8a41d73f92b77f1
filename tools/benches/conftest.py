"""Ranks are programs of the warm python (tests/support)."""

import pytest
import warm_python


@pytest.fixture(scope="module", autouse=True)
def warm():
    with warm_python.in_place_of_python():
        yield
