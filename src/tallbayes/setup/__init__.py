"""Set-up: from checked rows to an anchored problem."""
