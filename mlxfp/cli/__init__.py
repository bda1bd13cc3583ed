"""The command `mlxfp`: one file for each group of commands."""

from mlxfp.cli.commands import main

__all__ = ["main"]
