"""The command line program `mlxfp`. Each file defines one group of commands."""

from mlxfp.app.cli.commands import main

__all__ = ["main"]
