"""`python -m mlxfp` is the command `mlxfp`."""

import sys

from mlxfp.cli import main

if __name__ == "__main__":
    sys.exit(main())
