"""Records: what was computed, on disk before anyone sees it.

values        dataclasses and arrays as bytes, exact, without pickles
ledger        blocks and entries in one SQLite file
fingerprint   what a ledger is of
tasks         an executor that answers from the ledger what is there, and puts down what is not
"""
