"""One self-contained page: every figure with the table of claims. No script, nothing from the network.

The same as Markdown, with the figures as files beside it, for readers of the repository.
"""

from __future__ import annotations

import html
import json
import re

from tallbayes.experiments.claims import Claim, Shown
from tallbayes.experiments.store import Store

STYLE = """
:root { color-scheme: light dark; --ink: #1a1a1a; --paper: #fff; --rule: #d4d4d4; --soft: #525252; }
@media (prefers-color-scheme: dark) { :root { --ink: #e5e5e5; --paper: #171717; --rule: #404040; --soft: #a3a3a3; } }
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 0 auto;
       max-width: 62rem; padding: 1.5rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; }
p.note { color: var(--soft); }
figure { margin: 1rem 0; background: #fff; border-radius: 6px; overflow-x: auto; padding: .5rem; }
figure svg { width: 100%; height: auto; min-width: 34rem; display: block; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; min-width: 44rem; }
th, td { text-align: left; vertical-align: top; padding: .45rem .6rem; border-bottom: 1px solid var(--rule); }
td.verdict { font-weight: 600; }
@media print { body { max-width: none; } figure { break-inside: avoid; } }
"""


def render(figures: list[Shown], claims: list[Claim], quick: bool, store: Store) -> str:
    """The page as text."""
    setting = "quick setting: fewer paths, repeats and data sets" if quick else "full setting"
    sections = "\n".join(_section(figure) for figure in figures)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Multilevel Monte Carlo for Scalable Bayesian Computations, reproduced</title>
<style>{STYLE}</style>
</head>
<body>
<h1>Multilevel Monte Carlo for Scalable Bayesian Computations, reproduced</h1>
<p>Logistic regression with three coefficients, prior N(0, I), g = |theta - mode|<sup>2</sup>. Cost is counted in data
items along the paths, pilots included; the set-up passes stand apart unless said otherwise. References come from
quadrature that shares no code with the sampler.</p>
<p class="note">{setting}; made with {_versions(figures, store)}.</p>
<h2 id="claims">Claims</h2>
{claims_table(claims)}
{sections}
</body>
</html>
"""


def markdown(figures: list[Shown], claims: list[Claim], quick: bool, store: Store) -> str:
    """The same content for a reader of the repository."""
    command = "tallbayes reproduce" + (" --quick" if quick else "")
    rows = "\n".join(
        "| "
        + " | ".join(part.replace("|", "\\|") for part in (c.where, c.claim, c.measured, c.verdict, c.figure))
        + " |"
        for c in claims
    )
    sections = "\n".join(
        f"## {f.title}\n\n![{f.title}](figures/{f.name}.png)\n" + (f"\n{f.caption}\n" if f.caption else "")
        for f in figures
    )
    return f"""# The paper, reproduced

Written by `{command}` with {_versions(figures, store)}; results with seeds and settings are in `results/`. Logistic
regression with three coefficients, prior N(0, I), g = |theta - mode|^2. Cost is counted in data items along the paths,
pilots included; the set-up passes stand apart unless said otherwise. References come from quadrature that shares no
code with the sampler.

| where | claim | what we measured | verdict | figure |
|---|---|---|---|---|
{rows}

{sections}"""


def claims_table(claims: list[Claim]) -> str:
    rows = "\n".join(
        f"<tr><td>{html.escape(c.where)}</td><td>{html.escape(c.claim)}</td><td>{html.escape(c.measured)}</td>"
        f'<td class="verdict">{html.escape(c.verdict)}</td><td>{_link(c.figure)}</td></tr>'
        for c in claims
    )
    head = "".join(
        f'<th scope="col">{name}</th>' for name in ("where", "claim", "what we measured", "verdict", "figure")
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table></div>'


def _link(figure: str) -> str:
    return f'<a href="#{figure}">{figure}</a>' if figure else ""


def _section(figure: Shown) -> str:
    drawing = figure.svg[figure.svg.index("<svg") :]
    # Identifiers are unique within one drawing only.
    drawing = re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{figure.name}-", drawing)
    label = html.escape(figure.title, quote=True)
    drawing = drawing.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)
    caption = f"<p>{html.escape(figure.caption)}</p>" if figure.caption else ""
    return f'<h2 id="{figure.name}">{html.escape(figure.title)}</h2>\n<figure>{drawing}</figure>{caption}'


def _versions(figures: list[Shown], store: Store) -> str:
    for figure in figures:
        versions = json.loads(store.path(figure.name).read_text())["versions"]
        return ", ".join(f"{package} {number}" for package, number in versions.items())
    return "nothing yet"
