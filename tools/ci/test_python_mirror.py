"""frontends/python/penstock/_runtime_h.py is what the headers say, and what they say otherwise is noticed."""

import pathlib
import re

import pytest
from abi_headers import RUNTIME_HEADER, HeaderError, read_header
from make_python_mirror import HEADERS, MIRROR, Mirror, value_of


def mirror_of(tmp_path: pathlib.Path, change) -> str:
    """The mirror of the headers with another runtime.h."""
    changed = tmp_path / RUNTIME_HEADER.name
    changed.write_text(change(RUNTIME_HEADER.read_text()))
    headers = [read_header(path) for path in HEADERS[:-1]]
    runtime = read_header(changed)
    runtime.path = RUNTIME_HEADER
    return Mirror([*headers, runtime]).text()


def test_the_file_is_what_the_headers_say(tmp_path: pathlib.Path):
    assert mirror_of(tmp_path, lambda text: text) == MIRROR.read_text()


@pytest.mark.parametrize(("before", "after", "line"), [
    ("  uint32_t local_rank;", "  uint64_t local_rank;", '("local_rank", c_uint64)'),
    ("} penstock_topology;", "  double speed;\n} penstock_topology;", '("speed", c_double)'),
    ("PENSTOCK_SET_SUM = 1u << 4,", "PENSTOCK_SET_SUM = 1u << 6,", "SET_SUM = 64"),
    ("penstock_flush(penstock_set* set)", "penstock_flush(penstock_set* set, double* all)", '"flush": (c_void_p, (c_void_p, POINTER(c_double))),'),
])
def test_what_changes_in_the_header_changes_in_the_mirror(before, after, line, tmp_path: pathlib.Path):
    assert before in RUNTIME_HEADER.read_text()
    text = mirror_of(tmp_path, lambda header: header.replace(before, after))
    assert line in text and line not in MIRROR.read_text()


def test_what_it_does_not_understand_is_an_error(tmp_path: pathlib.Path):
    with pytest.raises(HeaderError, match="cannot mirror 'float speed'"):
        mirror_of(tmp_path, lambda text: text.replace("} penstock_topology;", "  float speed;\n} penstock_topology;"))
    with pytest.raises(HeaderError, match=re.escape("cannot evaluate 'sizeof(int)'")):
        value_of("sizeof(int)")
