"""What files of core/bucket may say of devices."""

import places_of_work
import pytest


def found(path: str, text: str, test: bool = False) -> list[str]:
    return places_of_work.check({path: text}, {path: test})


@pytest.mark.parametrize(
    "line",
    (
        "if (item.is_on_device()) return;",
        "if (message.is_direct()) return;",
        "const Stream* stream = nullptr;",
        "struct DevicePart;",
        "penstock_device_copy copy;",
        '#include "core/device/resident.hpp"',
    ),
)
def test_a_device_is_named_in_on_device_alone(line):
    (said,) = found("core/bucket/load.cpp", f"int a;\n{line}\n")
    assert said.startswith("core/bucket/load.cpp:2: names ")
    assert found("core/bucket/on_device/fetch.cpp", line) == []
    assert found("core/set/residence.cpp", line) == []
    assert found("core/bucket/testing.hpp", line, test=True) == []


def test_words_that_only_look_like_one_and_comments_are_fine():
    assert found("core/bucket/engine.hpp", "void park_on_device(BucketRun&);  // of a Stream\nStreams s; on_device.traffic.add(1);\n") == []
