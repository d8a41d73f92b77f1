"""One step late: the means under way are saved, loaded, and applied before parameters are sent."""

from __future__ import annotations

import contextlib
import copy
import io
from typing import Any

import torch
from late_support import DENSE, RATE, STEPS, TOP_K, backward, dense_mean, near, oracle, sgd, train
from late_support import wrap
from support import expect, make_model, run_checks, same_bits_on_all_ranks

import penstock.torch as hvd

def begin() -> None:
    hvd.init(process_sets="dynamic")


def saved(model: torch.nn.Module, optimizer: Any) -> dict[str, Any]:
    return copy.deepcopy(
        {
            "model": model.state_dict(),
            "optimizer": {**optimizer.state_dict(), **hvd.state_dict(optimizer)},
        }
    )


def check_values_that_are_sent_to_all_ranks_have_the_last_mean() -> None:
    # The first check, because join() refuses a set in the middle of a step, also without optimizer.
    model = make_model()
    optimizer = wrap(model, DENSE)
    train(model, optimizer, 0, STEPS)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    near(model, oracle(dense_mean, with_last=True))
    train(model, optimizer, STEPS, STEPS + 1)
    hvd.join()
    same_bits_on_all_ranks(model)
    optimizer.close()
    model = make_model()
    optimizer = wrap(model, DENSE)
    train(model, optimizer, 0, STEPS)
    wrap(model, DENSE)  # takes the parameters over
    near(model, oracle(dense_mean, with_last=True))


def check_the_others_go_on_and_compare_what_they_applied_while_a_rank_has_joined() -> None:
    model = make_model()
    optimizer = wrap(model, DENSE)
    train(model, optimizer, 0, 4 if hvd.rank() == hvd.size() - 1 else 20)
    hvd.join()
    optimizer.close()


def check_going_back_is_bit_identical() -> None:
    model = make_model()
    optimizer = wrap(model, TOP_K, inner=sgd(model, momentum=0.9))
    train(model, optimizer, 0, 5)
    checkpoint = saved(model, optimizer)
    assert {key for key in checkpoint["optimizer"] if key.startswith("penstock")} == {
        "penstock", "penstock.means", *(f"penstock.mean.{name}" for name, _ in model.named_parameters())
    }  # fmt: skip
    train(model, optimizer, 5, 9)
    final = copy.deepcopy(model.state_dict())

    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    train(model, optimizer, 5, 9)
    assert all(torch.equal(p, final[name]) for name, p in model.state_dict().items())

    model.load_state_dict(checkpoint["model"])
    without = {k: v for k, v in checkpoint["optimizer"].items() if ".mean." not in str(k)}
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        optimizer.load_state_dict(without)
    assert "was saved with 6 means" in said.getvalue(), said.getvalue()
    train(model, optimizer, 5, 9)
    assert not all(torch.equal(p, final[name]) for name, p in model.state_dict().items())


def check_saving_does_not_change_the_run() -> None:
    models = [make_model(), make_model()]
    for model in models:
        optimizer = wrap(model, TOP_K)
        for step in range(STEPS):
            train(model, optimizer, step, step + 1)
            if model is models[0]:
                saved(model, optimizer)
    assert all(torch.equal(p, q) for p, q in zip(models[0].parameters(), models[1].parameters()))


def check_states_of_other_models_are_refused() -> None:
    model = make_model()
    optimizer = wrap(model, TOP_K)
    train(model, optimizer, 0, 2)
    state = optimizer.compression_state_dict()
    first = next(key for key in state if ".mean." in key)
    with expect(ValueError, "0.weight", "expected (9, 5)"):
        optimizer.load_compression_state_dict({**state, "penstock.mean.0.weight": torch.ones(2)})
    with expect(ValueError, "incomplete"):
        optimizer.load_compression_state_dict({k: v for k, v in state.items() if k != first})
    backward(model, 2)
    optimizer.synchronize()
    with expect(AssertionError, "save after optimizer.step()"):
        optimizer.compression_state_dict()
    with optimizer.skip_synchronize():
        optimizer.step()
    optimizer.load_compression_state_dict(state)
    train(model, optimizer, 2, 4)
    at_once = wrap(make_model(), TOP_K.replace("previous", "current"))
    with expect(ValueError, "penstock.mean.", "optimizer.flush()"):
        at_once.load_compression_state_dict(state)


def check_another_number_of_ranks_takes_the_mean_that_was_under_way() -> None:
    alone = hvd.size() == 1
    first = hvd.global_process_set if alone else hvd.add_process_set([0])
    model = make_model()
    optimizer = wrap(model, DENSE, process_set=first)
    train(model, optimizer, 0, 2)
    states = hvd.allgather_object(optimizer.compression_state_dict())[:1]
    parameters = hvd.broadcast_object(copy.deepcopy(model.state_dict()), 0)
    optimizer.close()
    model.load_state_dict(parameters)
    optimizer = wrap(model, DENSE)
    assert "means of the last step: as saved" in optimizer.load_compression_shards(states)
    before = [p.detach().clone() for p in model.parameters()]
    train(model, optimizer, 2, 3)
    for (name, parameter), old in zip(model.named_parameters(), before):
        mean = states[0][f"penstock.mean.{name}"]
        assert mean.abs().max() > 0
        torch.testing.assert_close(parameter.detach(), old - RATE * mean)
    same_bits_on_all_ranks(model)
    if not alone:
        hvd.remove_process_set(first)


if __name__ == "__main__":
    begin()
    run_checks(globals())
