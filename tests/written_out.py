"""Designs with the columns of their categories written out, to be compared with what other codes make."""

import numpy as np


def written_out(design):
    """All columns (rows, d), in the order of their names."""
    coding = design.encoding.coding
    rows = design.rows if isinstance(design.rows, dict) else design.rows.rows()
    if not coding.names:
        return np.asarray(rows["x"])
    x = np.zeros((len(rows["y"]), len(coding.names) + 1), rows["x"].dtype if "x" in rows else np.float32)
    if coding.dense:
        x[:, list(coding.dense)] = rows["x"]
    for code in np.asarray(rows["codes"]).T if coding.indexed else ():
        x[np.arange(len(x)), code] = 1.0
    return x[:, :-1]
