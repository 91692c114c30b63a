"""Documents, and the code in them."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any, NamedTuple

NUMBER = re.compile(r"\d+(?:[.,]\d+)*")

ROOT = Path(__file__).parents[1]


class Block(NamedTuple):
    """A fenced block: its language, its text, and the line its text begins at."""

    language: str
    text: str
    line: int


def blocks_of(document: str) -> list[Block]:
    found = re.finditer(r"^```(\w*)\n(.*?)^```$", document, re.MULTILINE | re.DOTALL)
    return [Block(match[1], match[2], document.count("\n", 0, match.start()) + 2) for match in found]


def run_blocks(document: str, name: str) -> dict[str, Any]:
    """Run the Python blocks, and hold what they print against the text blocks that follow them; what they defined."""
    namespace: dict[str, Any] = {"__name__": "document"}
    printed = ""
    for block in blocks_of(document):
        if block.language == "python":
            printed = run_block(block, name, namespace)
        elif block.language == "text":
            assert words_of(block.text) == words_of(printed)
    return namespace


def run_block(block: Block, name: str, namespace: dict[str, Any]) -> str:
    """What a block of Python prints; errors have the line of the document."""
    output = io.StringIO()
    program = compile("\n" * (block.line - 1) + block.text, name, "exec", dont_inherit=True)
    with contextlib.redirect_stdout(output):
        exec(program, namespace)
    return output.getvalue()


def words_of(text: str) -> list[str]:
    """Everything but the numbers, whose last digits are the machine's own."""
    return NUMBER.sub("#", text).split()
