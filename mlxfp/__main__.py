"""Entry point of `python -m mlxfp`, equal to the command `mlxfp`."""

import sys

from mlxfp.app.cli import main

if __name__ == "__main__":
    sys.exit(main())
