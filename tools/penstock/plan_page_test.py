"""The page of `penstock plan` as a browser lays it out: what a parser of the file cannot see."""

import html
import json
import pathlib
import re
import shutil
import subprocess

import pytest
from command_test import ROOT, penstock

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium here; tools/setup --browser installs it")

SCHEMES = [word for name in ("fusion", "topk-residual", "dgc-hierarchical", "dear") for word in ("--scheme", ROOT / "conf" / f"{name}.toml")]
# Boxes of all words, those that stick out of their drawing or of the page, and pairs that lie over each other.
MEASURE = """
<pre id="found"></pre><script>
const shown = [...document.querySelectorAll("svg text, td, th, h1, h2, h3, p")].filter(one => one.textContent.trim());
const box = one => { const range = document.createRange(); range.selectNodeContents(one);
  return one.tagName === "text" ? one.getBoundingClientRect() : range.getBoundingClientRect(); };
const outside = shown.filter(one => { const mine = box(one), frame = (one.closest("svg") || document.documentElement).getBoundingClientRect();
  return mine.left < frame.left - 1 || mine.right > frame.right + 1 || mine.top < frame.top - 1 || mine.bottom > frame.bottom + 1; });
const over = [];
for (let i = 0; i < shown.length; ++i) for (let j = i + 1; j < shown.length; ++j) {
  const a = box(shown[i]), b = box(shown[j]);
  const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left), high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
  if (wide > 2 && high > 3) over.push(shown[i].textContent + " | " + shown[j].textContent); }
document.getElementById("found").textContent = JSON.stringify({words: shown.length, width: document.documentElement.scrollWidth,
  window: window.innerWidth, outside: outside.map(one => one.textContent), over: over, drawings: document.querySelectorAll("svg").length});
</script>"""


def browser(*arguments: object) -> subprocess.CompletedProcess:
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> pathlib.Path:
    file = tmp_path_factory.mktemp("page") / "plan.html"
    ran = penstock("plan", "--model", "vgg16", "--hosts", "16", "--ranks-per-host", "8", "--link", "25gbit", "--local", "400gbit", "--sweep", "ranks=8..1024",
                   "--sweep", "bandwidth=100mbit..100gbit", "--html", file, *SCHEMES)  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return file


def measured(page: pathlib.Path, width: int, tmp_path: pathlib.Path) -> dict:
    with_script = tmp_path / "measured.html"
    with_script.write_text(page.read_text().replace("</body>", MEASURE + "</body>"))
    shown = browser(f"--window-size={width},1600", "--dump-dom", with_script.as_uri()).stdout
    return json.loads(html.unescape(re.search(r'<pre id="found">(.*?)</pre>', shown, re.DOTALL)[1]))


@pytest.mark.parametrize("width", [900, 1200, 1920])
def test_no_word_sticks_out_or_lies_over_another(page, width, tmp_path):
    found = measured(page, width, tmp_path)
    assert found["words"] > 80 and found["drawings"] == 2 + 5, found
    assert found["width"] <= found["window"], found
    assert found["outside"] == [] and found["over"] == [], found


def test_what_lies_over_something_would_be_seen(page, tmp_path):
    spoilt = tmp_path / "spoilt.html"
    spoilt.write_text(page.read_text().replace("<h1>", '<p style="position: absolute; left: -30px; top: 20px">sticks out</p><h1 style="margin: 0">', 1))
    assert measured(spoilt, 1200, tmp_path)["outside"] == ["sticks out"]


@pytest.mark.parametrize("dark", [False, True])
def test_a_screenshot_shows_every_lane_in_its_colour(page, dark, tmp_path):
    from matplotlib import image

    picture = tmp_path / "plan.png"
    scheme = ["--blink-settings=preferredColorScheme=0"] if dark else []
    browser(*scheme, "--window-size=1200,2600", f"--screenshot={picture}", page.as_uri())
    pixels = image.imread(picture)[..., :3]
    assert pixels.shape[:2] == (2600, 1200)
    lanes = re.findall(r"--(backward|encode|exchange|decode|forward): (#[0-9a-f]{6})", page.read_text())
    assert len(lanes) == 10, lanes  # each in light and in dark
    for lane, colour in lanes[5:] if dark else lanes[:5]:
        wanted = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        assert (abs(pixels - wanted).max(axis=-1) < 0.01).sum() > 20, (lane, colour)
