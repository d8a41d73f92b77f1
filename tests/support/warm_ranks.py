"""For a conftest: sys.executable is the warm python in every test of the folder."""

import pytest
import warm_python


@pytest.fixture(scope="module", autouse=True)
def warm_ranks():
    with warm_python.in_place_of_python():
        yield
