"""HTML for notebooks, where colours and fonts are those of the page.

tables      a result, and the tables that all else is set in
displays    what one holds beside a result: `shown(thing)`

From outside: `tables.html`, `tables.grid_html`, `displays.shown`.
"""
