"""Sections of the report that appear when they are asked for.

checks   does the fit have responses like the one that was seen?
"""
