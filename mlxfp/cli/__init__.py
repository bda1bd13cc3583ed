"""The command `mlxfp`: what a shell can ask of the library, one file for each group of commands."""

from mlxfp.cli.commands import main

__all__ = ["main"]
