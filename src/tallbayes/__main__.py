"""`python -m tallbayes` is the command `tallbayes`."""

import sys

from tallbayes.commands.cli import main

if __name__ == "__main__":
    sys.exit(main())
