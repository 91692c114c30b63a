"""Pages of reports as their readers have them, and whatever is wrong with one."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import pairwise

NOTEBOOK_TAGS = "div table thead tbody tr th td span b br details summary ul li code"


class Cells(HTMLParser):
    """What a notebook shows: cells of all tables, row by row; every tag must close, and nothing may run or paint."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.rows: list[list[str]] = []
        self.feed(text)
        self.close()
        assert self.open == []
        assert "background" not in text

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in NOTEBOOK_TAGS.split()
        assert {name for name, _ in attrs} <= {"style", "class"}
        if tag == "tr":
            self.rows.append([])
        if tag in ("th", "td"):
            self.rows[-1].append("")
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "tr" in self.open:
            self.rows[-1][-1] += data


class Reader(HTMLParser):
    """The elements of a page in order, with attributes and text; complains of what is not closed."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None], list[str]]] = []
        self.open: list[int] = []
        self.inside: dict[int, list[str]] = {}
        self.feed(page)
        self.close()
        assert not self.open, f"never closed: {[self.elements[place][0] for place in self.open]}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"an attribute twice in {tag}"
        self.inside[len(self.elements)] = [self.elements[place][0] for place in self.open]
        self.elements.append((tag, dict(attrs), []))
        if tag not in ("meta", "link", "br", "hr"):
            self.open.append(len(self.elements) - 1)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.elements[self.open[-1]][0] == tag, f"</{tag}> closes {self.elements[self.open[-1]][0]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        for place in self.open:
            self.elements[place][2].append(data)

    def all(self, tag: str, **wanted: str) -> list[tuple[dict[str, str | None], str]]:
        return [
            (attributes, "".join(text))
            for name, attributes, text in self.elements
            if name == tag and all(attributes.get(key.rstrip("_")) == value for key, value in wanted.items())
        ]

    def text(self) -> str:
        """What a reader can see."""
        (_, body), *_ = self.all("body")
        return body


def faults(page: str) -> list[str]:
    """Whatever is wrong with a page for readers, screen readers or the network."""
    found, reader = [], Reader(page)
    elements = reader.elements
    identities = [attributes["id"] for _, attributes, _ in elements if "id" in attributes]
    if len(set(identities)) < len(identities):
        found.append("an id twice")
    for tag, attributes, _ in elements:
        for name in ("src", "href", "action", "srcset", "poster"):
            target = attributes.get(name)
            if target is not None and not target.startswith(("#", "data:")):
                found.append(f"{tag} {name} leaves the page")
            if target is not None and target.startswith("#") and target[1:] not in identities:
                found.append(f"{tag} points at nothing")
        for each in (attributes.get("aria-labelledby") or "").split():
            if each not in identities:
                found.append(f"{tag} is labelled by nothing")
        if tag in ("script", "iframe", "object", "embed", "img") or any(name.startswith("on") for name in attributes):
            found.append(f"{tag} is not wanted")
    if "url(" in page or "@import" in page:
        found.append("the style loads something")
    headings = [(int(tag[1]), "".join(text).strip()) for tag, _, text in elements if re.fullmatch("h[1-6]", tag)]
    if [level for level, _ in headings].count(1) != 1 or headings[0][0] != 1:
        found.append("not one h1, first")
    if any(after > before + 1 for (before, _), (after, _) in pairwise(headings)):
        found.append("a level of headings is left out")
    if not all(text for _, text in headings):
        found.append("an empty heading")
    if reader.all("html")[0][0].get("lang") != "en" or not reader.all("title")[0][1].strip():
        found.append("no language or title")
    if any("scope" not in attributes for attributes, _ in reader.all("th")):
        found.append("a th without scope")
    if len(reader.all("caption")) != len(reader.all("table")) or not all(text for _, text in reader.all("caption")):
        found.append("a table without caption")
    for place, (tag, attributes, _) in enumerate(elements):
        if tag == "svg":
            within = [
                t for p, (t, _, text) in enumerate(elements) if reader.inside[p][-1:] == ["svg"] and p > place and text
            ]
            if attributes.get("role") != "img" or within[:2] != ["title", "desc"]:
                found.append("a drawing that says nothing")
    return found


def cells_of(page: str) -> list[str]:
    """Cells of tables and terms of drawings, as text."""
    reader = Reader(page)
    return [text for _, text in [*reader.all("td"), *reader.all("th"), *reader.all("text")]]
