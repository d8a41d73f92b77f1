from warm_ranks import warm_ranks  # noqa: F401 - a fixture
