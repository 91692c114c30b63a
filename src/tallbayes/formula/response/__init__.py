"""The left side of a formula.

left        calls that make a response of several numbers a row: trials, censored times, an order
outcomes    a left side as the numbers of a family
"""
