"""A loss scale that changes, through every frontend: with the call that tells it nothing changes, and
without it one warning names the call."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from ddp_support import join_torch
from outcome_support import DOORS, SIGNS, TOPK, Sharded, Wrapped, backward, same
from support import expect, run_checks

import penstock.torch as hvd

SCALES = (1024.0, 2048.0, 64.0, 64.0, 4096.0, 0.5)


def scaled_step(door: Any, step: int, scale: float) -> None:
    door.optimizer.zero_grad()
    door.set_scale(scale)
    backward(door, step, scale)
    door.averaged()
    for one in door.model.parameters():
        one.grad.div_(scale)
    door.step()


def check_a_scale_that_is_told_changes_no_bit() -> None:
    for make in DOORS:
        for scheme in (TOPK, SIGNS):
            ends = []
            for scales in (SCALES, [1.0] * len(SCALES)):
                door = make(scheme)
                for step, scale in enumerate(scales):
                    scaled_step(door, step, scale)
                ends.append(door.parameters())
                door.close()
            same(*ends)


def check_a_scale_that_is_not_above_zero_is_refused() -> None:
    for make in DOORS:
        door = make(TOPK)
        with expect(ValueError, "grad scale is 0.0, expected a number above 0"):
            door.set_scale(0.0)
        door.close()


def check_a_scaler_whose_scale_is_not_told_gets_one_warning_that_names_the_call() -> None:
    names = {Wrapped: "optimizer.", Sharded: "for reducer in reducers.values(): reducer."}
    for make in DOORS:
        door, scaler = make(TOPK), torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=2)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for step in range(4):
                door.optimizer.zero_grad()
                backward(door, step, scaler.scale(torch.ones(())).item())
                scaler.step(door.optimizer)
                scaler.update()
        texts = [str(one.message) for one in caught if "set_grad_scale" in str(one.message)]
        expected = names.get(make, "state.") + "set_grad_scale(scaler.get_scale())"
        assert len(texts) == len(getattr(door, "reducers", "1")), (make, texts)
        assert all(expected in text for text in texts), (make, texts)
        door.close()


if __name__ == "__main__":
    hvd.init()
    join_torch()
    run_checks(globals())
