"""The command `mlxfp`: one file for each group of commands."""

from mlxfp.app.cli.commands import main

__all__ = ["main"]
