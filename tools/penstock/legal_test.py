"""`penstock check` passes plugins that are legal, though not like those of the tree."""

import pytest

from command_test import BUILD, ROOT, findings

# By folder of tests/plugins: the test that matters, its result, and part of what is said.
LEGAL = {
    "absent": ("faulty payloads", "ok", ""),  # sends nothing of an empty gradient
    "shift": ("conservation", "ok", "a shift, which moves by what was sent"),  # as EF21 and DIANA
    "shared_scale": ("faulty payloads", "ok", ""),  # the two rounds of docs/abi.md
    "each": ("given buckets", "warning", "splits given buckets"),  # a bucket for each gradient, whatever was given
}


@pytest.mark.parametrize("folder", LEGAL)
def test_a_legal_plugin_passes(folder):
    status, tests = findings(BUILD / f"tests/plugins/{folder}/plugin.so")
    failed = {name: found for name, found in tests.items() if found[0] == "fail"}
    assert status == 0 and not failed, failed
    name, result, said = LEGAL[folder]
    assert tests[name][0] == result and said in tests[name][1]


@pytest.mark.pages
def test_the_page_shows_the_compressor_of_two_rounds_that_is_checked_here():
    source = (ROOT / "tests/plugins/shared_scale.cpp").read_text()
    assert f"```cpp\n{source}```" in (ROOT / "docs/abi.md").read_text()
