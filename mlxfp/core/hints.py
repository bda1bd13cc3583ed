"""What a stage or source may say about itself so that `optimize` can rewrite the pipeline it is in. Saying nothing is always right."""

from collections.abc import Collection, Sequence
from typing import Any, ClassVar

from mlxfp.core.conditions import Condition

Choice = tuple[tuple[str, str], ...]  # (name, name before) of every column


class StageHints:
    """What a stage may say."""

    __slots__ = ()
    idle: ClassVar[bool] = False  # it does nothing but keep a place: chunks need not go through it

    def choice(self, names: Sequence[str]) -> Choice | None:
        """Say which of the columns with these names each column that comes out is; None: it does more than choose columns."""
        return None

    def looks_at(self) -> Collection[str] | None:
        """Say which columns decide what it does, where it lets others pass and keeps no rows as its state; None: all.

        A stage that makes batches says which columns they come from. One that makes groups may keep rows: with fewer columns than they
        came with, if a cursor has it so.
        """
        return None

    def behind(self, before: Any, needed: Collection[str]) -> Any:
        """Return a stage that does what the stage `before` does and then this one, with the states of the former; None: there is none.

        Of the columns that come out of both, only those that are `needed` have to.
        """
        return None

    def runs(self) -> tuple[Any, ...]:
        """Return the stages that it runs one after the other, each of which says itself in an error which of them it was."""
        return ()

    def requires(self) -> tuple[Condition, ...]:
        """Say what the rows that come out meet, if all that it does is to leave out those that do not."""
        return ()


class SourceHints:
    """What a source may do."""

    __slots__ = ()

    def restricted(self, columns: Sequence[str], conditions: tuple[Condition, ...]) -> Any:
        """Return a source that has less to do, or itself, with the same rows in the same order, and the same positions.

        It may leave out all columns but these, and give nulls in place of a row that does not meet the conditions.
        """
        return self
