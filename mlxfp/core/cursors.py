"""Cursors: immutable positions of a run. `execution.py` creates cursors."""

from typing import Any

from attrs import field, frozen

from mlxfp.core.arrow.serialization import pack, unpack
from mlxfp.core.identity import Division, Identity, comparable
from mlxfp.core.nodes import Pipeline
from mlxfp.core.sources import contents
from mlxfp.support.errors import CursorError
from mlxfp.support.html import clip, fragment, table


@frozen
class Snapshot:
    """State of an iteration at the start of a source chunk: the position in the source, and the states of all stages."""

    epoch: int
    position: Any = None
    rows: int = 0  # number of source rows before `position`
    states: tuple[Any, ...] | None = field(default=None, eq=comparable)  # states of the stages; None stands for the initial states
    items: int = 0  # number of items since the start of the epoch


@frozen
class Recorded:
    """Description of the pipeline that created a cursor. `Cursor.from_bytes` reads the description from the bytes."""

    identity: Identity
    division: Division
    level: str
    contents: tuple[str | None, ...]


@frozen
class Cursor:
    """Immutable position of a run. `iterate(dataset, cursor)` continues with the next item.

    `base` is a snapshot: the position of the source, and the states of the stages. `done` is the number of items since the snapshot.
    A printed cursor shows the epoch and the number of examples, groups or batches that the epoch has yielded. All epochs of `repeat` count
    as one epoch.

    >>> import mlxfp as fp
    >>> rows = fp.from_examples([{"x": 1}, {"x": 2}])
    >>> row, cursor = next(fp.iterate(rows))
    >>> list(fp.iterate(rows, fp.Cursor.from_bytes(cursor.to_bytes())))[0][0], cursor.epoch
    ({'x': 2}, 0)
    >>> cursor
    Cursor(epoch=0, examples=1)
    """

    base: Snapshot = field(repr=False)
    done: int
    # Pipeline that created the cursor. None for the cursor of an inner dataset, such as one dataset of a mixture.
    owner: Pipeline[Any] | Recorded | None = field(default=None, repr=False, eq=False)

    @property
    def epoch(self) -> int:
        """Current epoch of the run."""
        return self.base.epoch

    @property
    def items(self) -> int:
        """Number of items that the current epoch has yielded."""
        return self.base.items + self.done

    @property
    def level(self) -> str:
        """What the pipeline yields: "examples", "groups" or "batches", or "items" if unknown."""
        return "items" if self.owner is None else self.owner.level

    @property
    def identity(self) -> Identity:
        """Text and fingerprint of each part of the pipeline."""
        return () if self.owner is None else self.owner.identity

    @property
    def division(self) -> Division | None:
        """Number of ranks and batch size of the pipeline, or None if unknown."""
        return None if self.owner is None else self.owner.division

    @property
    def contents(self) -> tuple[str | None, ...]:
        """Number and total size of the local files of each source, as text, or None for a source without local files."""
        if isinstance(self.owner, Recorded):
            return self.owner.contents
        return () if self.owner is None else contents(self.owner)

    def __repr__(self) -> str:
        return f"Cursor(epoch={self.epoch}, {self.level}={self.items})"

    def back(self, items: int) -> "Cursor":
        """Return a cursor to an earlier position: `items` items back. Both positions must lie in the same chunk of the source."""
        return Cursor(self.base, self.done - items, self.owner)

    def to_bytes(self) -> bytes:
        """Return the cursor as bytes with a version and a checksum. Arrow data are stored as Arrow IPC, all other data as JSON.

        Reading the bytes executes no code. Raises `FingerprintError` if a value in the pipeline has no fingerprint.
        """
        return pack((self.identity, self.division, self.level, self.contents, self), KINDS)

    def _repr_html_(self) -> str:
        """Return HTML with the position and the pipeline, for notebooks."""
        owner: Any = self.owner
        parts = [text for text, _ in owner.identity] if isinstance(owner, Recorded) else [] if owner is None else [repr(owner)]
        rows = [("epoch", self.epoch), (f"{self.level} in the epoch", self.items), ("source rows before the snapshot", self.base.rows)]
        return fragment(table(["cursor", "value"], [*rows, *(("pipeline", clip(text, 300)) for text in parts[:20])]))

    @staticmethod
    def from_bytes(data: bytes) -> "Cursor":
        """Return the cursor stored in the bytes of `to_bytes`. Raises `CursorError` for other bytes."""
        match unpack(data, KINDS):
            case (parts, division, level, texts, Cursor(base=Snapshot() as base, done=done)):
                owner = Recorded(parts, division, level, texts)
                _check_fields(owner, base, done)
                return Cursor(base, done, None if division is None else owner)
        raise CursorError("The cursor cannot be read: its bytes hold no cursor. Pass the bytes returned by Cursor.to_bytes().")


def _check_fields(owner: Any, base: Snapshot, done: Any) -> None:
    """Raise `CursorError` with the name of the first field that has a wrong type or is negative."""
    parts, division, texts = owner.identity, owner.division, owner.contents
    known = isinstance(parts, tuple) and all(isinstance(part, tuple) and tuple(map(type, part)) == (str, str) for part in parts)
    match division:
        case None | Division(shards=int(), batch_rows=int(), fingerprint=str()):
            divided = True
        case _:
            divided = False
    fields = {
        "pipeline": (parts, known),
        "division": (division, divided),
        "contents of the files": (texts, isinstance(texts, tuple) and all(isinstance(text, str | None) for text in texts)),
        "level": (owner.level, owner.level in ("items", "examples", "groups", "batches")),
        "epoch": (base.epoch, _is_count(base.epoch)),
        "number of source rows": (base.rows, _is_count(base.rows)),
        "states": (base.states, base.states is None or isinstance(base.states, tuple)),
        "number of items": (done, _is_count(done)),
        "number of items before the snapshot": (base.items, _is_count(base.items)),
    }
    for name, (value, fits) in fields.items():
        if not fits:
            raise CursorError(f"The cursor cannot be read: the {name} is {value!r:.60}. Pass the bytes returned by Cursor.to_bytes().")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and value >= 0


KINDS: dict[str, type] = {"cursor": Cursor, "snapshot": Snapshot, "division": Division}
