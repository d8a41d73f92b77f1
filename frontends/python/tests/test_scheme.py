"""Schemes written in Python equal schemes from files."""

import pytest

import penstock.torch as hvd
from penstock.torch.settings import scheme_text

tomllib = pytest.importorskip("tomllib")  # Python 3.11

SCHEME = hvd.Scheme(
    compressor="topk",
    memory="residual",
    plugins=['a "quoted" name', "b"],
    options={"compressor.topk": {"density": 1e-3, "exact": True}, "memory.residual": {"beta": 1}},
    rules=[{"match": {"dims": 1}, "compressor": "none"}, {"match": {"min_numel": 3}}],
    switches=[{"at_step": 7, "set": {"compressor.topk.density": 0.5}}],
)


def test_its_text_is_the_toml_of_its_tables():
    assert tomllib.loads(str(SCHEME)) == {
        "scheme": {"compressor": "topk", "memory": "residual", "plugins": ['a "quoted" name', "b"]},
        "compressor": {"topk": {"density": 0.001, "exact": True}},
        "memory": {"residual": {"beta": 1}},
        "rule": [{"match": {"dims": 1}, "compressor": "none"}, {"match": {"min_numel": 3}}],
        "switch": [{"at_step": 7, "set": {"compressor": {"topk": {"density": 0.5}}}}],
    }
    assert scheme_text(SCHEME) == str(SCHEME)


def test_a_scheme_without_keys_is_the_default():
    assert tomllib.loads(scheme_text(hvd.Scheme())) == {"scheme": {}}


def test_what_toml_has_no_words_for_is_refused():
    with pytest.raises(ValueError, match="None of type NoneType"):
        hvd.Scheme(compressor=None)


@pytest.mark.parametrize("take", (scheme_text, hvd.PenstockState))
def test_the_name_of_a_method_is_refused_with_what_is_expected(take):
    with pytest.raises(ValueError, match="the scheme is 'topk', expected the path of a .toml file"):
        take("topk")


def test_an_optimizer_takes_it():
    import torch

    hvd.init()
    try:
        model = torch.nn.Linear(30, 4)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1),
            named_parameters=model.named_parameters(),
            scheme=hvd.Scheme(
                compressor="topk",
                memory="residual",
                options={"compressor.topk": {"density": 0.1}},
                rules=[{"match": {"dims": 1}, "compressor": "none", "memory": "none"}],
            ),
        )
        model(torch.ones(2, 30)).sum().backward()
        optimizer.step()
        used = {
            item["gradient"]: item["compressor"]
            for bucket in optimizer.report()["buckets"]
            for item in bucket["items"]
        }
        assert used == {"weight": "topk", "bias": "none"}
        assert model.weight.grad.count_nonzero() == 12
    finally:
        hvd.shutdown()
