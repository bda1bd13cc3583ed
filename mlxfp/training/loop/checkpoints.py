"""Checkpoints: a state, a cursor and what else a run needs, in one file. After a crash there is either the old file or the new one.

The file is safetensors, with everything but the arrays as JSON in its metadata; nothing in it is ever executed. Arrays are named by
their place in the state: `params.layers[0].weight`.
"""

import base64
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
from attrs import field, frozen

from mlxfp.core.cursors import Cursor
from mlxfp.core.identity import fingerprint
from mlxfp.distributed import Ranks
from mlxfp.support.checks import check_types
from mlxfp.support.errors import CheckpointError
from mlxfp.support.trees import flatten, unflatten
from mlxfp.training.loop.checkpoint_files import (
    FORMAT,
    check_same_segments,
    check_segments,
    compute,
    folder_of,
    head_of,
    json_text,
    name_of,
    numbered,
    open_file,
    paths_of_ranks,
    read_file,
    shards_in,
    write_file,
)
from mlxfp.training.loop.events import Evaluation
from mlxfp.training.loop.running_metrics import RunningMetrics, read_numbers
from mlxfp.training.steps.batches import kind
from mlxfp.training.steps.segments import joined, part_of
from mlxfp.training.steps.sharding import axes_in, names_of, segments_in
from mlxfp.training.steps.state import TrainState, trees_of

_COMPARED = 16  # steps of checkpoints that ranks tell each other: more than are ever kept apart


@frozen
class Checkpoint:
    """What a checkpoint file holds. `fit(step, it.state, batches, cursor=it.cursor, history=it.history, running=it.running)` continues it.

    `history` has the evaluations so far, `running` the metrics of the epoch so far, and `config` what was saved with them. `optimizer` has
    the settings of the optimizer that trained the state, where they are known.

    >>> Checkpoint(TrainState({"w": mx.zeros(2)}, {}, {}, step=3, seed=0)).state.step
    3
    """

    state: TrainState
    cursor: Cursor | None = None
    history: tuple[Evaluation, ...] = ()
    config: Mapping[str, Any] = field(factory=dict)
    running: RunningMetrics = field(factory=RunningMetrics, eq=False, repr=False)
    optimizer: Mapping[str, Any] = field(factory=dict)

    @property
    def fingerprint(self) -> str | None:
        """The fingerprint of the cursor's pipeline: two runs with the same one see the same batches."""
        return None if self.cursor is None else fingerprint(self.cursor.identity)


def save_state(  # noqa: PLR0913  # each is a part of a checkpoint
    path: str | os.PathLike[str],
    state: TrainState,
    *,
    cursor: Cursor | None = None,
    history: Sequence[Evaluation] = (),
    running: RunningMetrics | None = None,
    config: Mapping[str, Any] | None = None,
    optimizer: Mapping[str, Any] | None = None,
) -> None:
    """Write a state, and what a run needs to continue from it, to a file; the folder must exist. `config` is anything that JSON can hold.

    `optimizer` has the settings of the optimizer, as the event `RunStarted` has them.

    Of a model that is divided between ranks the file has the part of this rank, and says which arrays are parts, and of how many.

    The file is complete and on the disk before it replaces an older one. Raises `CheckpointError` for arrays that
    safetensors cannot hold (float64), `ArgumentTypeError` for a configuration that JSON cannot hold, and `FingerprintError` for the
    cursor of a pipeline without a fingerprint.

    >>> import mlxfp as fp
    >>> from tempfile import TemporaryDirectory
    >>> from mlx import nn
    >>> state = fp.train_state(nn.Linear(2, 3), fp.optimizers.adamw(1e-3), seed=7)
    >>> with TemporaryDirectory() as folder:
    ...     fp.save_state(f"{folder}/last.safetensors", state)
    ...     fp.load_state(f"{folder}/last.safetensors", state).state == state
    True
    """
    check_types(TrainState, state=state)
    check_types((type(None), Cursor), cursor=cursor)
    check_types((type(None), RunningMetrics), running=running)
    trees = trees_of(state)
    arrays = dict(zip(names_of(state.shards, trees), flatten(trees)[1], strict=True))
    wrong = [name for name, array in arrays.items() if array.dtype == mx.float64]
    if wrong:
        raise CheckpointError(f"A checkpoint cannot hold float64, got it in {', '.join(wrong)}. Train in float32.")
    running = running or RunningMetrics()
    rest = {
        "format": FORMAT[0],
        "version": FORMAT[1],
        "step": state.step,
        "seed": state.seed,
        "running": {"totals": running.totals, "unread": read_numbers(running.unread), "batches": running.batches},
        "cursor": None if cursor is None else base64.b64encode(cursor.to_bytes()).decode(),
        "history": [(each.step, dict(each.metrics)) for each in history],
        "config": dict(config or {}),
        "optimizer": dict(optimizer or {}),
    }
    if state.shards is not None:
        rest["shards"] = _shards_of(state)
    write_file(Path(path), arrays, {"mlxfp": json_text(rest)})


def load_state(path: str | os.PathLike[str], like: TrainState) -> Checkpoint:
    """Read what `save_state` wrote, into the structure of `like`: a state of the same model and optimizer.

    Every array is bit for bit what was saved. Raises `CheckpointError`, naming every array that is missing, unexpected, or of another
    shape or dtype than in `like`; for a file that is damaged or not a checkpoint; and for another part of a state that is divided between
    ranks than `like` is, which `load_latest` puts together.

    >>> import mlxfp as fp
    >>> from tempfile import TemporaryDirectory
    >>> from mlx import nn
    >>> small, large = (fp.train_state(nn.Linear(2, size), fp.optimizers.adamw(1e-3)) for size in (1, 2))
    >>> with TemporaryDirectory() as folder:
    ...     fp.save_state(f"{folder}/last.safetensors", small)
    ...     try:
    ...         fp.load_state(f"{folder}/last.safetensors", large)
    ...     except fp.errors.CheckpointError as error:
    ...         print("params.weight" in str(error) or str(error))
    True
    """
    check_types(TrainState, like=like)
    arrays, fields = read_file(Path(path))
    own_shards = _shards_of(like)
    there, own = ((each["index"], each["count"]) for each in (fields["shards"], own_shards))
    if there != own:
        has, expected = (f"part {index + 1} of {count}" if count > 1 else "a whole state" for index, count in (there, own))
        raise CheckpointError(
            f"{path} has {has}, and the state it is loaded into is {expected}: a model that is divided between ranks has a file for each. "
            "Read all of them with load_latest(folder, like, ranks=connect()), where the folder is the one with rank-0 in it."
        )
    check_same_segments(Path(path), fields["shards"], own_shards)
    return _fitting(Path(path), arrays, fields, like)


def _shards_of(state: TrainState) -> dict[str, Any]:
    shards, trees = state.shards, trees_of(state)
    if shards is None:
        return shards_in({})
    said = {"axes": axes_in(shards, trees), "segments": segments_in(shards, trees)}
    return {"index": shards.index, "count": shards.count, **said}


def _fitting(path: Path, arrays: dict[str, mx.array], fields: dict[str, Any], like: TrainState) -> Checkpoint:
    """Put the arrays of a checkpoint into the structure of `like`."""
    structure, leaves = flatten(trees_of(like))
    names = names_of(like.shards, trees_of(like))
    expected = dict(zip(names, map(kind, leaves), strict=True))
    found = {name: kind(array) for name, array in sorted(arrays.items())}
    differences = [f"missing: {name} {text}" for name, text in expected.items() if name not in found]
    differences += [f"unexpected: {name} {text}" for name, text in found.items() if name not in expected]
    differences += [
        f"different: {name} is {found[name]}, expected {text}" for name, text in expected.items() if found.get(name, text) != text
    ]
    if differences:
        listed = "\n  ".join(differences)
        hint = "another model or optimizer, or a state without start() of a step with options?"
        raise CheckpointError(f"{path} does not fit the state it is loaded into ({hint}):\n  {listed}")
    trees = unflatten(structure, [arrays[name] for name in names])
    rest = {name: value for name, value in fields.items() if name not in ("step", "seed", "shards")}
    return Checkpoint(TrainState(**trees, step=fields["step"], seed=fields["seed"], shards=like.shards), **rest)


def load_latest(folder: str | os.PathLike[str], like: TrainState, *, ranks: Ranks | None = None) -> Checkpoint:
    """Read the checkpoint with the most steps that `observers.checkpoint` wrote to a folder; if there is none, `like` begins a new run.

    So the same lines start a run and continue one that was killed. With `ranks`, each rank reads its own checkpoint of the last step that
    all of them have; or, where another number of ranks wrote them, the last one of any rank, which `fit` continues if the global batches
    are the same. The parts of a model that was divided are then put together, and divided as `like` is. Raises what `load_state` raises,
    and `CheckpointError` where ranks have checkpoints, but none of the same step, and where parts would have to be put together of which
    is not known how they were divided: those of layers of MLX's own `shard_linear`, which do not keep their segments.

    >>> from tempfile import TemporaryDirectory
    >>> start = TrainState({"w": mx.zeros(2)}, {}, {}, step=0, seed=0)
    >>> with TemporaryDirectory() as folder:
    ...     begin = load_latest(folder, start)
    >>> begin.state == start, begin.cursor
    (True, None)
    """
    check_types(TrainState, like=like)
    check_types((type(None), Ranks), ranks=ranks)
    found = numbered(folder_of(folder, ranks))
    if ranks is None:
        step = max(found, default=None)
    elif (others := _last_of_others(ranks, anywhere := paths_of_ranks(folder), like)) is None:
        step = _common_step(ranks, found, folder)
    elif others.parts > 1 or like.shards is not None:
        return _joined(_whole_of_others(ranks, anywhere, folder), like)
    else:
        step = others.step
        found = {step: paths[-1] for step, paths in anywhere.items()} | found
        _check_seen(ranks, step, found, folder)
    return Checkpoint(like) if step is None else load_state(found[step], like)


@frozen
class _Others:
    """The last step that another number of ranks has written, and in how many parts."""

    step: int
    parts: int


def _last_of_others(ranks: Ranks, anywhere: Mapping[int, Sequence[Path]], like: TrainState) -> _Others | None:
    """Return the last checkpoint of any rank, if that was a run of another number of ranks."""
    last = max(anywhere, default=-1)
    own = [last, 0, 0] if last < 0 else [last, *_shards_and_parts_in(anywhere[last][-1])]
    step, shards, parts = map(int, max(ranks.gather(own))[:3])
    same = shards in (0, ranks.world.copies) and parts in (0, _shards_of(like)["count"])
    return None if step < 0 or same else _Others(step, parts)


def _shards_and_parts_in(path: Path) -> tuple[int, int]:
    """Return into how many shards the pipeline of a checkpoint divides its rows, and its model; 0 where that cannot be read."""
    head = head_of(path)
    cursor = head.get("cursor")
    division = None if cursor is None else Cursor.from_bytes(base64.b64decode(cursor)).division
    shards = 0 if division is None else division.shards
    return shards, shards_in(head)["count"] if head else 0


def _whole_of_others(ranks: Ranks, anywhere: Mapping[int, Sequence[Path]], folder: str | os.PathLike[str]) -> Sequence[Path]:
    """Return the files that have all parts of the state after the last step that has all, in their order."""
    whole = {step: parts for step, paths in anywhere.items() if (parts := _all_parts(paths))}
    step = _common_step(ranks, whole, folder)
    if step is None:
        found = ", ".join(path.parent.name for path in anywhere[max(anywhere)])
        raise CheckpointError(
            f"{os.fspath(folder)} has no step with all parts of a state that was divided between ranks: of {name_of(max(anywhere))} it has "
            f"those in {found}. Use a folder that all machines share, or copy the files of all ranks to it; or use another one to begin a "
            "new run."
        )
    return whole[step]


def _all_parts(paths: Sequence[Path]) -> Sequence[Path]:
    """Return a file of each part of a state, in their order; nothing if one is missing, or damaged."""
    shards = [(shards_in(head), path) for path in paths if (head := head_of(path))]
    count = shards[0][0]["count"] if shards else 0
    files = {each["index"]: path for each, path in shards if each["count"] == count}
    return [files[index] for index in sorted(files)] if len(files) == count else []


def _joined(paths: Sequence[Path], like: TrainState) -> Checkpoint:
    """Put the parts of a state together, and take the part that `like` is; of one array at a time, as all may be too large."""
    opened = [open_file(path) for path in paths]
    names, (_, fields) = list(opened[0][0]), opened[0]
    there, own = fields["shards"], _shards_of(like)
    check_segments(paths[0], there, own)
    found = {}
    for name in names:
        parts = [arrays.pop(name) for arrays, _ in opened if name in arrays]
        array = joined(parts, there["axes"][name], there["segments"][name]) if name in there["axes"] else parts[0]
        axis, sizes = own["axes"].get(name), own["segments"].get(name, ())
        if axis is not None and array.ndim > axis and array.shape[axis] == sum(sizes):
            array = part_of(array, axis, sizes, own["index"], own["count"])
        compute(paths[0], array)
        found[name] = array
    return _fitting(paths[0], found, fields, like)


def _check_seen(ranks: Ranks, step: int, found: Collection[int], folder: str | os.PathLike[str]) -> None:
    missing = [str(rank) for rank, (seen,) in enumerate(ranks.gather([step in found])) if not seen]
    if missing:
        raise CheckpointError(
            f"The last checkpoint in {os.fspath(folder)} is {name_of(step)}, of another number of ranks, and these do not see it: "
            f"{', '.join(missing)}. Use a folder that all machines share, or copy that file to them."
        )


def _common_step(ranks: Ranks, found: Collection[int], folder: str | os.PathLike[str]) -> int | None:
    """Return the last step that all ranks have, None if no rank has any."""
    last = sorted(found)[-_COMPARED:]
    seen = [{int(step) for step in steps if step >= 0} for steps in ranks.gather([*last, *[-1] * (_COMPARED - len(last))])]
    common = set.intersection(*seen)
    if not common and any(seen):
        counts = ", ".join(f"rank {rank}: {max(steps, default='none')}" for rank, steps in enumerate(seen))
        raise CheckpointError(
            f"The ranks have no checkpoint of the same step in {os.fspath(folder)} (the last of each is {counts}). Start as many ranks as "
            "wrote them, each on the machine that has its folder; or use another folder to begin a new run."
        )
    return max(common, default=None)
