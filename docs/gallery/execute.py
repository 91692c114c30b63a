"""The gallery's worked cases: their code is run, and what it prints and draws is put into their pages.

python docs/gallery/execute.py            those whose code or output is not as it was when they were run (resumable)
python docs/gallery/execute.py claims     this one in any case

A page runs in a process and a folder of its own: its blocks of Python in one namespace, its `sh` blocks in a shell. The
text block behind either is what it printed, and pictures that it saves go into docs/gallery/pictures. The last line of
a page says what that took, with two marks that the tests hold against the page:

    code      the blocks that were run
    output    the text blocks behind them, and the pictures that the page shows
"""

from __future__ import annotations

import hashlib
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PICTURES = HERE / "pictures"
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "examples")]

from documents import blocks_of, run_block  # noqa: E402

RUN = ("python", "sh")
# A block that is run, and the text block behind it, if there is one.
STEP = re.compile(r"^```(python|sh)\n(.*?)^```$(?:\n\n```text\n.*?^```$)?", re.MULTILINE | re.DOTALL)
SHOWN = re.compile(r"\]\(pictures/([\w-]+\.(?:svg|png))\)")
LAST = "\n*Run as it stands here, data and imports included, in {seconds:.0f} seconds of processor time.*\n"
MARKS = "<!-- code {code} output {output} -->\n"
ENDING = re.compile(r"\n\*Run as it stands here.*\Z", re.DOTALL)


def pages() -> list[Path]:
    return [page for page in sorted(HERE.glob("*.md")) if page.stem != "index"]


def marks(text: str) -> str:
    """The line that says which code and which output a page has."""
    blocks = blocks_of(text)
    code = "".join(f"{each.language}\n{each.text}" for each in blocks if each.language in RUN).encode()
    pictures = [PICTURES / name for name in sorted(set(SHOWN.findall(text)))]
    output = "".join(each.text for each in blocks if each.language == "text").encode()
    output += b"".join(hashlib.sha256(each.read_bytes()).digest() if each.exists() else b"-" for each in pictures)
    return MARKS.format(code=hashlib.sha256(code).hexdigest()[:16], output=hashlib.sha256(output).hexdigest()[:16])


def is_current(text: str) -> bool:
    return text.endswith(marks(text))


def executed(text: str, name: str) -> str:
    """The page with what its blocks print, run in the folder that this process is in."""
    namespace: dict[str, Any] = {"__name__": "document"}
    lines = iter([each for each in blocks_of(text) if each.language in RUN])

    def ran(found: re.Match[str]) -> str:
        block = next(lines)
        printed = run_block(block, name, namespace) if block.language == "python" else in_shell(block.text)
        shown = re.sub(r"[ \t]+$", "", printed, flags=re.MULTILINE).strip("\n")
        behind = f"\n\n```text\n{shown}\n```" if shown else ""
        return f"```{found[1]}\n{found[2]}```{behind}"

    return ENDING.sub("", STEP.sub(ran, text)).rstrip("\n") + "\n"


def in_shell(commands: str) -> str:
    done = subprocess.run(["sh", "-ec", commands], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"expected commands that end well; got exit code {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def run_page(page: Path, folder: Path) -> str:
    """The page as it is after a run in a process of its own, in `folder`, which has its pictures then."""
    written = folder / page.name
    settings = {"MATPLOTLIBRC": str(HERE / "matplotlibrc"), "SOURCE_DATE_EPOCH": "0", "JAX_PLATFORMS": "cpu"}
    settings["TALLBAYES_CACHE"] = str(folder / "programs")
    settings["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = [sys.executable, "-W", "ignore", __file__, "--here", str(page), str(written)]
    subprocess.run(command, cwd=folder, env=os.environ | settings, check=True)
    return written.read_text()


def renew(page: Path) -> None:
    """Run a page and keep what came of it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        text = run_page(page, folder)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        for picture in sorted({*SHOWN.findall(text)}):
            shutil.copy(folder / picture, PICTURES / picture)
    took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    text += LAST.format(seconds=took)
    page.write_text(text + marks(text))
    print(f"{page.stem}: {took:.0f} processor seconds", flush=True)


def main(names: list[str]) -> None:
    if names[:1] == ["--here"]:
        page, written = map(Path, names[1:])
        written.write_text(executed(page.read_text(), page.name))
        return
    PICTURES.mkdir(exist_ok=True)
    for page in [HERE / f"{name}.md" for name in names] or [
        each for each in pages() if not is_current(each.read_text())
    ]:
        renew(page)


if __name__ == "__main__":
    main(sys.argv[1:])
