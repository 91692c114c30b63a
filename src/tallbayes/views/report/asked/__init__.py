"""Sections of a report that appear where they are asked for.

sensitivity   which priors matter
"""
