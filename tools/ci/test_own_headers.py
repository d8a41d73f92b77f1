"""A .cpp of the core has a header of its own, and a class lives in one .cpp."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import check_includes as ci  # noqa: E402
import own_headers  # noqa: E402


def violations(files: dict[str, str]) -> list[str]:
    return own_headers.check(files, {path: ci.is_test(path) for path in files})


def test_a_source_without_a_header_of_its_name_is_refused() -> None:
    assert violations({"core/set/save.cpp": "", "core/set/set.hpp": ""}) == [
        "core/set/save.cpp: has no header of its own, expected core/set/save.hpp; what it defines is a class or a group of "
        "functions with a name, which its header declares"
    ]
    assert violations({"core/set/save.cpp": "", "core/set/save.hpp": ""}) == []


@pytest.mark.parametrize(
    "path",
    ["core/set/step_test.cpp", "core/set/testing.cpp", "plugins/memories/dgc/more.cpp", "sdk/kernels/more.cpp", "tools/more.cpp"],
)
def test_tests_and_what_is_not_the_core_need_none(path: str) -> None:
    assert violations({path: ""}) == []


def test_the_main_of_a_program_needs_none() -> None:
    assert violations({"core/base/try.cpp": "int main(int argc, char** argv) {\n}\n"}) == []


def test_what_carries_out_a_public_header_has_that_one() -> None:
    assert violations({"core/library/door.cpp": "", "core/include/penstock/runtime.h": ""}) == []
    assert len(violations({"core/library/door.cpp": ""})) == 1


def test_rooms_and_files_that_are_not_there_yet_are_let_be() -> None:
    for place in own_headers.NOT_YET:
        path = f"core/{place}" if place.endswith(".cpp") else f"core/{place}/more.cpp"
        assert violations({path: ""}) == []


def test_what_is_not_there_yet_is_still_without() -> None:
    files = ci.files_of(Path(__file__).resolve().parents[2])
    for place in own_headers.NOT_YET:
        rest = tuple(other for other in own_headers.NOT_YET if other != place)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(own_headers, "NOT_YET", rest)
            assert violations(files) != [], f"{place} keeps the rule now: take it off the list"


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("Status Set::wait(uint64_t index) {", "Set"),
        ("Set::Set(const Services& services)", "Set"),
        ("Set::~Set() {", "Set"),
        ("Result<std::vector<Stage>> Fits::all_stages() const {", "Fits"),
        ("Carries::Kept Carries::replace(Kept kept) {", "Carries"),
        ("void Control::Client::loop() {", "Control::Client"),
        ("bool Text::operator==(const Text& other) const {", "Text"),
        ("std::map<std::pair<int, int>, A> Deep::all() {", "Deep"),
    ],
)
def test_a_class_lives_in_one_source(line: str, name: str) -> None:
    files = {f"core/set/{stem}.{end}": f"{line}\n" if end == "cpp" else "" for stem in "ab" for end in ("cpp", "hpp")}
    assert violations(files) == [
        f"core/set/b.cpp: class {name} is in core/set/a.cpp too; a class lives in one .cpp: split it by what it owns"
    ]


@pytest.mark.parametrize(
    "line",
    [
        "  return Set::wait(index);",
        "// Set::wait(index) waits.",
        "Status wait(const Set::Index& index) {",
        "const Set::Index kFirst = 0;",
        "Set::Index first(const Set& set) {",
        "namespace planning::Inner {",
    ],
)
def test_what_only_names_a_class_does_not_define_it(line: str) -> None:
    assert own_headers.defined_classes(f"{line}\n") == set()


def test_classes_of_one_name_in_two_rooms_are_two() -> None:
    files = {f"core/{room}/step.{end}": "void Step::go() {}\n" if end == "cpp" else "" for room in ("set", "control") for end in ("cpp", "hpp")}
    assert violations(files) == []


def test_the_repository_keeps_it() -> None:
    files = ci.files_of(Path(__file__).resolve().parents[2])
    assert violations(files) == []
