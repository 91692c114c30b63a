"""Pages of reports in a real browser: on a phone, on a desk, in the dark and on paper. Without one nothing runs.

What a page shows is measured from outside, in frames of the two widths, since pages forbid scripts.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import zlib
from html import escape, unescape
from pathlib import Path
from typing import Any

import pytest
from reports import all_pages

from tallbayes.views.report.stylesheet import DARK, LIGHT, SHEET

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = next((path for path in map(shutil.which, BROWSERS) if path), "")
if not BROWSER:
    reason = f"THE PAGE TESTS DID NOT RUN: no browser found; looked for {', '.join(BROWSERS)}"
    pytest.skip(reason, allow_module_level=True)
SWITCHES = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
)
SHEET_OF_CARDS = SHEET[
    SHEET.index("  table, caption, tbody") : SHEET.index("  dl { grid-template-columns: minmax(0, 1fr)")
]
PHONE, DESKTOP = (375, 812), (1280, 900)
DARK_SWITCH = "--blink-settings=preferredColorScheme=0"
LIGHT_SWITCH = "--blink-settings=preferredColorScheme=1"

MEASURE = """
function measure(frame) {
  const page = frame.contentDocument, root = page.documentElement, view = frame.contentWindow;
  const shown = each => each.getClientRects().length > 0;
  const charts = [...page.querySelectorAll("svg")].filter(shown);
  const texts = charts.flatMap(chart => [...chart.querySelectorAll("text")].map(text => {
    const box = text.getBBox(), room = chart.viewBox.baseVal;
    return {text: text.textContent, kind: text.getAttribute("class"), left: box.x, right: box.x + box.width,
      top: box.y, bottom: box.y + box.height, width: room.width, height: room.height, chart: charts.indexOf(chart),
      size: 12 * chart.getScreenCTM().a};
  }));
  const beyond = [...page.body.querySelectorAll("*")].filter(each => shown(each) && !each.closest(".scroll") &&
    !each.closest("svg") && each.getBoundingClientRect().right > root.clientWidth + 0.5);
  const drawn = charts.flatMap(chart => [...chart.querySelectorAll("line.grid, line.origin, line.interval, rect.band")]
    .map(each => {
      const box = each.getBBox();
      return {kind: each.getAttribute("class"), left: box.x, right: box.x + box.width, top: box.y,
        bottom: box.y + box.height, chart: charts.indexOf(chart)};
    }));
  const boxes = [...page.querySelectorAll(".scroll")].filter(shown);
  const colour = (each, name) => each ? view.getComputedStyle(each)[name] : null;
  return {name: frame.title, width: view.innerWidth, client: root.clientWidth, scroll: root.scrollWidth,
    beyond: beyond.map(each => each.outerHTML.slice(0, 80)), charts: charts.length, texts: texts, drawn: drawn,
    wide: boxes.filter(each => each.scrollWidth > each.clientWidth).length,
    captions: boxes.filter(each => each.querySelector("caption span").getBoundingClientRect().right >
      root.clientWidth).length,
    paper: colour(page.body, "backgroundColor"), ink: colour(page.body, "color"),
    mark: colour(charts[0] && charts[0].querySelector(".interval"), "stroke"),
    letters: colour(charts[0] && charts[0].querySelector("text"), "fill"),
    digits: colour(page.querySelector("td") || page.body, "fontVariantNumeric"),
    requests: view.performance.getEntriesByType("resource").length};
}
window.onload = () => {
  const found = [...document.querySelectorAll("iframe")].map(measure);
  document.body.innerHTML = "";
  document.body.textContent = "MEASURED" + JSON.stringify(found) + "END";
};
"""


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return all_pages()


@pytest.fixture
def browse(tmp_path: Path) -> Any:
    """A function that runs the browser once, and ends all it started."""

    def run(*arguments: str) -> str:
        profile = tmp_path / f"profile{len(list(tmp_path.iterdir()))}"
        command = [BROWSER, *SWITCHES, f"--user-data-dir={profile}", *arguments]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
        with subprocess.Popen(command, **pipes, start_new_session=True, cwd=tmp_path) as process:
            try:
                output, complaint = process.communicate(timeout=150)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        assert process.returncode == 0, complaint.decode(errors="replace")
        return output.decode(errors="replace")

    return run


def measured_in(browse: Any, folder: Path, shown: dict[str, str], *switches: str) -> list[dict[str, Any]]:
    """What the browser shows of every page, unfolded, in a frame as wide as a phone and in one as wide as a desk."""
    frames = "".join(
        f'<iframe title="{name}" width="{width}" height="{height}" style="border:0" srcdoc="{escape(page)}"></iframe>'
        for width, height in (PHONE, DESKTOP)
        for name, page in ((name, page.replace("<details>", '<details open="">')) for name, page in shown.items())
    )
    harness = folder / "harness.html"
    harness.write_text(f"<!doctype html><meta charset=utf-8><script>{MEASURE}</script><body>{frames}", "utf-8")
    dumped = browse(*switches, "--window-size=1400,1000", "--virtual-time-budget=20000", "--dump-dom", harness.as_uri())
    found = re.search("<body>MEASURED(.*)END", dumped, re.DOTALL)
    assert found is not None, dumped[:500]
    return json.loads(unescape(found[1]))


def crowded(texts: list[dict[str, Any]]) -> list[str]:
    """Texts of a drawing that leave it or stand on one another."""
    found = [
        text["text"]
        for text in texts
        if text["left"] < -1 or text["right"] > text["width"] + 1 or text["bottom"] > text["height"] + 3
    ]
    for place, one in enumerate(texts):
        for other in texts[place + 1 :]:
            across = min(one["right"], other["right"]) - max(one["left"], other["left"])
            down = min(one["bottom"], other["bottom"]) - max(one["top"], other["top"])
            if one["chart"] == other["chart"] and across > 1 and down > 4:
                found.append(f"{one['text']} on {other['text']}")
    return found


def struck(found: dict[str, Any]) -> list[str]:
    """Labels and numbers of a forest plot that a line runs through."""
    return [
        f"{line['kind']} through {text['text']}"
        for text in found["texts"]
        if {"label", "number", "group"} & set(text["kind"].split())
        for line in found["drawn"]
        if line["chart"] == text["chart"]
        and min(line["right"], text["right"]) > max(line["left"], text["left"]) - 0.1
        and min(line["bottom"], text["bottom"]) - max(line["top"], text["top"]) > 4
    ]


def rgb(colour: str) -> str:
    return f"rgb({', '.join(str(int(colour[place : place + 2], 16)) for place in (1, 3, 5))})"


def test_pages_fit_a_phone_and_a_desk(browse: Any, tmp_path: Path, pages: dict[str, str]) -> None:
    found = measured_in(browse, tmp_path, pages, LIGHT_SWITCH)
    assert [(each["name"], each["width"]) for each in found] == [(n, w) for w in (375, 1280) for n in pages]
    for each in found:
        where = each["name"], each["width"]
        assert each["scroll"] <= each["client"], where
        assert each["beyond"] == [], where
        assert each["captions"] == 0, where
        assert crowded(each["texts"]) == [], where
        assert all(text["size"] >= 11 for text in each["texts"]), where
        assert each["requests"] == 0, where
        assert (each["paper"], each["ink"]) == (rgb(LIGHT["paper"]), rgb(LIGHT["ink"])), where
        assert "tabular-nums" in each["digits"], where
    phone = [each for each in found if each["width"] == 375]
    assert [(each["name"], each["wide"]) for each in phone if each["wide"]] == []
    assert [(each["name"], struck(each)[:2]) for each in phone if struck(each)] == []
    by_name = {(each["name"], each["width"]): each for each in found}
    assert [by_name["logistic", width]["charts"] for width in (375, 1280)] == [3, 3]


def test_control_what_does_not_fit_is_noticed(browse: Any, tmp_path: Path, pages: dict[str, str]) -> None:
    page = pages["logistic"]
    bad = {
        "wide": page.replace("</main>", '<p style="width:2000px">a</p></main>'),
        "crowded": page.replace(">EV<", f">{'EV' * 60}<"),
        # As it was: tables that scroll, and a grid behind the letters.
        "cut off": page.replace(SHEET_OF_CARDS, "").replace("overflow-x: visible", "overflow-x: auto"),
        "struck": re.sub('(<line x1="[^"]*" y1=")[^"]*(" x2="[^"]*" y2="[^"]*" class="grid")', r"\g<1>0\g<2>", page),
    }
    found = {(each["name"], each["width"]): each for each in measured_in(browse, tmp_path, bad)}
    assert found["wide", 375]["scroll"] > 375
    assert found["wide", 375]["beyond"]
    assert crowded(found["crowded", 1280]["texts"])
    assert found["cut off", 375]["wide"]
    assert struck(found["struck", 375])


def test_dark_pages_are_dark(browse: Any, tmp_path: Path, pages: dict[str, str]) -> None:
    for each in measured_in(browse, tmp_path, {"logistic": pages["logistic"]}, DARK_SWITCH):
        assert (each["paper"], each["ink"]) == (rgb(DARK["paper"]), rgb(DARK["ink"]))
        assert (each["mark"], each["letters"]) == (rgb(DARK["mark"]), rgb(DARK["ink"]))


def first_pixels(path: Path) -> tuple[tuple[int, int], bytes]:
    """Width and height of a picture, and its pixels as they are filtered."""
    content = path.read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    packed, place = b"", 8
    while place < len(content):
        size, kind = struct.unpack(">I4s", content[place : place + 8])
        packed += content[place + 8 : place + 8 + size] if kind == b"IDAT" else b""
        place += size + 12
    return struct.unpack(">II", content[16:24]), zlib.decompress(packed)


@pytest.mark.parametrize(("size", "switch"), [(PHONE, LIGHT_SWITCH), (DESKTOP, LIGHT_SWITCH), (DESKTOP, DARK_SWITCH)])
def test_pages_are_pictured(
    browse: Any, tmp_path: Path, pages: dict[str, str], size: tuple[int, int], switch: str
) -> None:
    page, picture = tmp_path / "report.html", tmp_path / "picture.png"
    page.write_text(pages["logistic"], encoding="utf-8")
    browse(switch, f"--window-size={size[0]},{size[1]}", f"--screenshot={picture}", page.as_uri())
    found, pixels = first_pixels(picture)
    assert found == size
    # The first pixel is the paper, and there is more than paper.
    paper = (LIGHT if switch == LIGHT_SWITCH else DARK)["paper"]
    assert pixels[1:4] == bytes.fromhex(paper[1:])
    assert len(set(pixels)) > 50


def test_pages_are_printed_with_everything_unfolded(browse: Any, tmp_path: Path, pages: dict[str, str]) -> None:
    def pages_of(content: str) -> int:
        place, paper = tmp_path / "report.html", tmp_path / "report.pdf"
        place.write_text(content, encoding="utf-8")
        paper.unlink(missing_ok=True)
        browse("--no-pdf-header-footer", f"--print-to-pdf={paper}", place.as_uri())
        assert paper.read_bytes().startswith(b"%PDF")
        return len(re.findall(rb"/Type\s*/Page\b(?!s)", paper.read_bytes()))

    page = pages["logistic"]
    filler = "<p>line</p>" * 200
    folded = page.replace("</details>", f"{filler}</details>").replace('<details open="">', "<details>")
    assert pages_of(page) > 0
    assert pages_of(folded) == pages_of(folded.replace("<details>", "<details open>")) > 10
