"""Cursors: where a run is, as a value. See `execution.py` for how one is made."""

from typing import Any

from attrs import field, frozen

from mlxfp._html import clip, fragment, table
from mlxfp.core.arrow.serialization import pack, unpack
from mlxfp.core.errors import CursorError
from mlxfp.core.identity import Identity, comparable
from mlxfp.core.nodes import Pipeline


@frozen
class Snapshot:
    """A run between two source chunks."""

    epoch: int
    position: Any = None
    rows: int = 0  # source rows before the position: they number the rows that follow
    states: tuple[Any, ...] | None = field(default=None, eq=comparable)  # None: every stage at its start


@frozen
class Recorded:
    """The pipeline of a cursor that was read from bytes: only its identity is known."""

    identity: Identity


@frozen
class Cursor:
    """Where a run is: after `done` items of what follows a snapshot. Immutable; `iterate(dataset, cursor)` continues exactly there.

    >>> from mlxfp.core.execution import iterate
    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> rows = from_examples([{"x": 1}, {"x": 2}])
    >>> row, cursor = next(iterate(rows))
    >>> list(iterate(rows, Cursor.from_bytes(cursor.to_bytes())))[0][0], cursor.epoch
    ({'x': 2}, 0)
    """

    base: Snapshot = field(repr=False)
    done: int
    owner: Pipeline[Any] | Recorded | None = field(default=None, repr=False, eq=False)  # None inside a source that holds datasets

    @property
    def epoch(self) -> int:
        """The epoch that the run is in."""
        return self.base.epoch

    @property
    def identity(self) -> Identity:
        """What the parts of the cursor's pipeline are: (text, fingerprint) of each."""
        return () if self.owner is None else self.owner.identity

    def back(self, items: int) -> "Cursor":
        """Return the cursor before the last `items` items, which came from the chunk of this cursor."""
        return Cursor(self.base, self.done - items, self.owner)

    def to_bytes(self) -> bytes:
        """Write the cursor: versioned, with a checksum, Arrow data as IPC and the rest as JSON; nothing in it is ever executed.

        Raises `FingerprintError` if the pipeline holds something that has no fingerprint.
        """
        return pack((self.identity, self), _KINDS)

    def _repr_html_(self) -> str:
        """Show in a notebook where the run is, and of which pipeline."""
        owner: Any = self.owner
        parts = [text for text, _ in owner.identity] if isinstance(owner, Recorded) else [] if owner is None else [repr(owner)]
        rows = [("epoch", self.epoch), ("items after the last snapshot", self.done), ("source rows before it", self.base.rows)]
        return fragment(table(["cursor", "value"], [*rows, *(("pipeline", clip(text, 300)) for text in parts[:20])]))

    @staticmethod
    def from_bytes(data: bytes) -> "Cursor":
        """Read what `to_bytes` wrote; raises `CursorError` for anything else."""
        match unpack(data, _KINDS):
            case (tuple() as owner, Cursor(base=Snapshot(epoch=int(), rows=int(), states=None | tuple()) as base, done=int(done))):
                if all(isinstance(part, tuple) and tuple(map(type, part)) == (str, str) for part in owner):
                    return Cursor(base, done, Recorded(owner))
        raise CursorError("The cursor cannot be read: its parts are not those of a cursor. Use what Cursor.to_bytes() returned.")


_KINDS: dict[str, type] = {"cursor": Cursor, "snapshot": Snapshot}
