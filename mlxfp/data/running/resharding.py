"""A run that goes on with another number of ranks: the same global batches, of which each rank reads another part."""

import re
from typing import Any

import attrs

from mlxfp.core.cursors import Cursor, Snapshot
from mlxfp.core.datasets import Dataset
from mlxfp.core.identity import Identity
from mlxfp.core.nodes import flat_parts
from mlxfp.support.errors import ArgumentError

_SHARD, _BATCH = re.compile(r"shard\(index=(\d+), count=(\d+)"), re.compile(r"batch\(size=(\d+)")


def shards_of(identity: Identity) -> int | None:
    """Return into how many shards a pipeline divides its rows; None: it has no `shard`."""
    return next((int(found[2]) for text, _ in identity if (found := _SHARD.match(text))), None)


def resharded(dataset: Dataset[Any], cursor: Cursor, batches: int | None) -> Cursor:
    """Return the cursor after the same global batches for a pipeline that has another `shard`, and a `batch` of another size for it.

    `batches` is how many this run has had in the epoch of the cursor. A cursor of any other pipeline is returned as it is. Raises
    `ArgumentError` where global batches would have another number of rows. To go on costs the time to read the epoch up to there.
    """
    parts = list(flat_parts(dataset))
    if len(parts) != len(cursor.identity) or cursor.identity == dataset.identity:
        return cursor
    before, now = {"count": 1, "size": 0}, {"count": 1, "size": 0}
    for part, (text, digest), (here, own) in zip(parts, cursor.identity, dataset.identity, strict=True):
        like: Any = part
        if _SHARD.match(here) and (found := _SHARD.match(text)):
            like = attrs.evolve(part, index=int(found[1]), count=int(found[2]))
            before["count"], now["count"] = like.count, part.count
        elif _BATCH.match(here) and (found := _BATCH.match(text)):
            like = attrs.evolve(part, size=int(found[1]))
            before["size"], now["size"] = like.size, part.size
        if repr(like) != text or (like is part and digest != own):
            return cursor
    if before["count"] == now["count"] or not before["size"]:
        return cursor
    _check_sizes(before, now)
    if batches is None:
        raise ArgumentError(
            f"The cursor is of a run with {_ranks(before)}, and this one has {_ranks(now)}; to go on, it must be known how many batches of "
            "the epoch were made. Pass running= of the checkpoint to fit; a checkpoint of an older mlxfp goes on with as many ranks only."
        )
    return Cursor(Snapshot(cursor.epoch), batches, dataset)


def _check_sizes(before: dict[str, int], now: dict[str, int]) -> None:
    rows = before["count"] * before["size"]
    if rows == now["count"] * now["size"]:
        return
    share, left = divmod(rows, now["count"])
    cure = (
        f"Make batches of {share} rows on each: batch({share})."
        if not left
        else (f"{rows} rows cannot be divided by {now['count']}: start {_divisors(rows)} ranks, and give each its share.")
    )
    raise ArgumentError(
        f"The run began with {_ranks(before)} and batches of {before['size']} rows on each, {rows} together, and would go on with "
        f"{_ranks(now)} and batches of {now['size']}, {now['count'] * now['size']} together: these would be other batches. {cure}"
    )


def _ranks(said: dict[str, int]) -> str:
    return "1 rank" if said["count"] == 1 else f"{said['count']} ranks"


def _divisors(rows: int) -> str:
    some = [str(count) for count in range(1, min(rows, 64) + 1) if rows % count == 0]
    return f"{', '.join(some[:-1])} or {some[-1]}" if len(some) > 1 else some[0]
