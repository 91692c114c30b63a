"""The style of a report: two palettes, and the sheet that uses them.

Colours are custom properties, so that drawings change with the page: light, dark where the reader's system is, and
light again on paper. Letters have a contrast of at least 4.5 on whatever they stand, lines and marks of 3.
"""

from __future__ import annotations

LIGHT = {
    "paper": "#ffffff",
    "shade": "#f5f5f2",
    "ink": "#1c1d1f",
    "soft": "#55585d",
    "rule": "#dcdcd7",
    "edge": "#85888d",
    "mark": "#1d5c96",
    "other": "#a04a14",
    "band": "#e9eef4",
    "good": "#1c6b3c",
    "alarm": "#9c2315",
    "alarm-paper": "#fdf2ef",
    "notice": "#7a5300",
    "notice-paper": "#fdf7e6",
}
DARK = {
    "paper": "#15171a",
    "shade": "#1e2125",
    "ink": "#e7e5e1",
    "soft": "#a8abb0",
    "rule": "#34383d",
    "edge": "#7d8187",
    "mark": "#86b8ea",
    "other": "#eda673",
    "band": "#242d38",
    "good": "#7fcf9c",
    "alarm": "#ffad9e",
    "alarm-paper": "#2c1a18",
    "notice": "#e5c07a",
    "notice-paper": "#29220f",
}
# Which letters stand on what, and which marks: the pairs that must differ enough.
LETTERS = [
    *((text, paper) for text in ("ink", "soft") for paper in ("paper", "shade", "band")),
    *((text, "alarm-paper") for text in ("ink", "alarm", "mark")),
    *((text, "notice-paper") for text in ("ink", "notice", "mark")),
    ("good", "paper"),
    ("mark", "paper"),
]
MARKS = [(mark, paper) for mark in ("mark", "other", "edge") for paper in ("paper", "band")]


def _properties(palette: dict[str, str]) -> str:
    return " ".join(f"--{name}: {colour};" for name, colour in palette.items())


SHEET = (
    f"""
:root {{ color-scheme: light dark; {_properties(LIGHT)} }}
@media screen and (prefers-color-scheme: dark) {{ :root {{ {_properties(DARK)} }} }}
"""
    + """
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body { margin: 0 auto; max-width: 56rem; padding: 2.5rem 1.25rem 4rem; color: var(--ink); background: var(--paper);
  font: 1rem/1.55 -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Liberation Sans", Arial, sans-serif;
  font-variant-numeric: tabular-nums lining-nums; overflow-wrap: break-word; }
h1 { font-size: 1.9rem; line-height: 1.2; letter-spacing: -.015em; margin: 0 0 .75rem; text-wrap: balance; }
h2 { font-size: 1.35rem; line-height: 1.25; letter-spacing: -.01em; margin: 3.5rem 0 1rem; padding-top: 1.1rem;
  border-top: 2px solid var(--ink); }
h3 { font-size: 1.05rem; margin: 2.25rem 0 .5rem; }
h2 + h3 { margin-top: 1rem; }
p, ul, dl { margin: .6rem 0; max-width: 44rem; }
ul { padding-left: 1.2rem; }
li { margin: .3rem 0; }
code { font: .9em/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, "Liberation Mono", monospace;
  unicode-bidi: isolate; overflow-wrap: anywhere; }
a { color: var(--mark); text-underline-offset: .15em; }
.formula { margin: .75rem 0; padding: .6rem .8rem; background: var(--shade); border-radius: 4px; max-width: none; }
.lead { font-size: 1.1rem; }
main > section:first-child h2 { margin-top: 2rem; }
.soft, figcaption, caption { color: var(--soft); }
.status { font-weight: 600; color: var(--good); }
.warning { margin: 1.25rem 0; padding: .85rem 1rem; color: var(--ink); background: var(--alarm-paper);
  border: 1px solid var(--alarm); border-left-width: 6px; border-radius: 4px; max-width: 44rem; }
.notice { margin: 1.25rem 0; padding: .85rem 1rem; color: var(--ink); background: var(--notice-paper);
  border: 1px solid var(--notice); border-left-width: 6px; border-radius: 4px; max-width: 44rem; }
.warning p, .notice p { margin: .35rem 0; }
.warning strong { color: var(--alarm); }
.notice strong { color: var(--notice); }
header .soft, .footnote { font-size: .875rem; line-height: 1.45; }
nav { margin: 1.25rem 0 0; font-size: .925rem; }
nav a { margin-right: 1.25rem; white-space: nowrap; }
figure { margin: 1.25rem 0; }
figcaption, caption { font-size: .875rem; line-height: 1.45; text-align: left; max-width: 44rem; }
figcaption { margin-top: .5rem; }
caption { padding: 0 0 .5rem; caption-side: top; max-width: none; }
caption span { display: block; position: sticky; left: 0; max-width: min(44rem, calc(100vw - 2rem)); }
.chart { display: block; width: 100%; height: auto; }
.chart.narrow { display: none; }
@media screen and (max-width: 40rem) {
  body { padding: 1.5rem 1rem 3rem; }
  h1 { font-size: 1.55rem; }
  .lead { font-size: 1.05rem; }
  .chart.wide { display: none; }
  .chart.narrow { display: block; max-width: 27rem; }
}
.chart text { font-size: 13px; fill: var(--ink); paint-order: stroke; stroke: var(--paper); stroke-width: 3px;
  stroke-linejoin: round; }
.chart .title { font-weight: 600; }
.chart .group { font-weight: 600; }
.chart .tick, .chart .ends { fill: var(--soft); }
.chart .tick { font-size: 12px; }
.chart .grid { stroke: var(--rule); stroke-width: 1; }
.chart .origin { stroke: var(--edge); stroke-width: 1.5; }
.chart .band { fill: var(--band); }
.chart .interval { stroke: var(--mark); stroke-width: 2; }
.chart .arrow { stroke: var(--mark); stroke-width: 2; fill: none; }
.chart .point { fill: var(--mark); stroke: var(--mark); stroke-width: 1.5; }
.chart .ribbon { fill: var(--mark); fill-opacity: .22; }
.chart .ribbon.far { fill-opacity: .12; }
.chart .ribbon-line { fill: none; stroke: var(--mark); stroke-width: 2; stroke-linejoin: round; }
.chart .dots { fill: none; stroke: var(--mark); stroke-linecap: round; stroke-opacity: .55; }
.chart .alone { fill: none; stroke: var(--other); stroke-width: 1.5; stroke-dasharray: 6 4; }
.chart .point.open { fill: var(--paper); }
.chart .series0 { fill: var(--mark); stroke: var(--mark); }
.chart .series1 { fill: var(--other); stroke: var(--other); }
.chart .series2 { fill: var(--edge); stroke: var(--edge); }
.chart .series3 { fill: var(--ink); stroke: var(--ink); }
.chart .symbol { stroke-width: 0; }
.chart .fitted { stroke-width: 1.5; stroke-dasharray: 6 4; }
.chart .series1.fitted { stroke-dasharray: 2 3; }
.chart .whisker { stroke-width: 1.5; }
.scroll { overflow-x: auto; margin: 1rem 0; }
.scroll:focus-visible, summary:focus-visible, a:focus-visible { outline: 2px solid var(--mark); outline-offset: 2px; }
table { border-collapse: separate; border-spacing: 0; font-size: .875rem; line-height: 1.4; min-width: 100%; }
th, td { padding: .32rem 0 .32rem 1.1rem; text-align: left; vertical-align: baseline; }
th:first-child { padding-left: 0; }
thead th { font-weight: 600; vertical-align: bottom; border-bottom: 1.5px solid var(--edge); }
tbody th, tbody td { border-bottom: 1px solid var(--rule); }
tbody th { font-weight: 400; unicode-bidi: isolate; overflow-wrap: anywhere; min-width: 7rem; max-width: 16rem; }
tbody .group th { font-weight: 600; padding-top: .8rem; max-width: none; }
tbody th.member { padding-left: .9rem; }
tbody .alone > * { padding-top: .8rem; }
.number { text-align: right; white-space: nowrap; }
thead .number { white-space: normal; }
td i { display: inline-block; }
.error { display: inline-block; text-align: left; margin-left: .35rem; color: var(--soft); }
details { margin: 1rem 0; }
summary { cursor: pointer; font-weight: 600; padding: .25rem 0; }
dl { display: grid; grid-template-columns: minmax(7rem, max-content) minmax(0, 1fr); gap: .3rem 1.25rem; }
dt { color: var(--soft); }
dd { margin: 0; }
@media screen and (max-width: 40rem) {
  .scroll { overflow-x: visible; }
  table, caption, tbody, tr, tbody th { display: block; min-width: 0; max-width: none; }
  thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  tbody tr { display: grid; grid-template-columns: repeat(var(--abreast), minmax(0, 1fr)); gap: .1rem .8rem;
    padding: .45rem 0 .55rem; border-bottom: 1px solid var(--rule); }
  tbody tr.group { padding: .9rem 0 .3rem; border-bottom: 1.5px solid var(--edge); }
  tbody th, tbody td, tbody .group th, tbody .alone > * { padding: 0; border: 0; min-width: 0; max-width: none; }
  tbody th { grid-column: 1 / -1; font-weight: 600; }
  tbody th.member { padding-left: 0; }
  td, td.number { text-align: left; white-space: normal; overflow-wrap: anywhere; }
  td::before { content: attr(data-head); display: block; color: var(--soft); font-size: .75rem; white-space: normal; }
  td i { display: none; }
  td .error { display: block; margin: 0; font-size: .75rem; }
  dl { grid-template-columns: minmax(0, 1fr); gap: 0; }
  dd { margin: 0 0 .5rem; }
}
@media print {
  :root { color-scheme: light; }
  @page { margin: 16mm 14mm; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  nav { display: none; }
  h2, h3, summary { break-after: avoid; }
  figure, .warning, .notice { break-inside: avoid; }
  thead { display: table-header-group; }
  tr { break-inside: avoid; }
  table { font-size: 8pt; }
  th, td { padding-left: .6rem; }
  .number { white-space: normal; }
  .scroll { overflow: visible; }
  details::details-content { display: block; content-visibility: visible; block-size: auto; }
  details:not([open]) > :not(summary) { display: block; }
  summary { list-style: none; }
  a { color: inherit; text-decoration: none; }
}
"""
)
