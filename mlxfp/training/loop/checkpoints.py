"""Checkpoints: a state, a cursor and what else a run needs, in one file. After a crash there is either the old file or the new one.

The file is safetensors, with everything but the arrays as JSON in its metadata; nothing in it is ever executed. Arrays are named by
their place in the state: `params.layers[0].weight`.
"""

import base64
import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
from attrs import field, frozen

from mlxfp.core.atomic_files import PARTIAL, written_whole
from mlxfp.core.checks import check_types
from mlxfp.core.cursors import Cursor
from mlxfp.core.errors import ArgumentTypeError, CheckpointError, MissingFileError
from mlxfp.core.identity import fingerprint
from mlxfp.core.trees import flatten, paths, unflatten
from mlxfp.data.running.resharding import shards_of
from mlxfp.distributed import Ranks
from mlxfp.models.safetensors_files import check_head
from mlxfp.training.loop.events import Evaluation
from mlxfp.training.loop.running_metrics import RunningMetrics, read_numbers
from mlxfp.training.steps.batches import kind
from mlxfp.training.steps.state import TrainState, trees_of

_COMPARED = 16  # steps of checkpoints that ranks tell each other: more than are ever kept apart
_FORMAT = ("mlxfp.state", 3)  # name and version


@frozen
class Checkpoint:
    """What a checkpoint file holds. `fit(step, it.state, batches, cursor=it.cursor, history=it.history, running=it.running)` continues it.

    `history` has the evaluations so far, `running` the metrics of the epoch so far, and `config` what was saved with them. `optimizer` has
    the settings of the optimizer that trained the state, where they are known.
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

    The file is complete and on the disk before it replaces an older one. Raises `CheckpointError` for arrays that
    safetensors cannot hold (float64), `ArgumentTypeError` for a configuration that JSON cannot hold, and `FingerprintError` for the
    cursor of a pipeline without a fingerprint.

    >>> from tempfile import TemporaryDirectory
    >>> from mlx import nn
    >>> from mlxfp.training.optimization.optimizers import adamw
    >>> from mlxfp.training.steps.state import train_state
    >>> state = train_state(nn.Linear(2, 3), adamw(1e-3), seed=7)
    >>> with TemporaryDirectory() as folder:
    ...     save_state(f"{folder}/last.safetensors", state)
    ...     load_state(f"{folder}/last.safetensors", state).state == state
    True
    """
    check_types(TrainState, state=state)
    check_types((type(None), Cursor), cursor=cursor)
    check_types((type(None), RunningMetrics), running=running)
    structure, leaves = flatten(trees_of(state))
    arrays = dict(zip(paths(structure), leaves, strict=True))
    wrong = [name for name, array in arrays.items() if array.dtype == mx.float64]
    if wrong:
        raise CheckpointError(f"A checkpoint cannot hold float64, got it in {', '.join(wrong)}. Train in float32.")
    running = running or RunningMetrics()
    rest = {
        "format": _FORMAT[0],
        "version": _FORMAT[1],
        "step": state.step,
        "seed": state.seed,
        "running": {"totals": running.totals, "unread": read_numbers(running.unread), "batches": running.batches},
        "cursor": None if cursor is None else base64.b64encode(cursor.to_bytes()).decode(),
        "history": [(each.step, dict(each.metrics)) for each in history],
        "config": dict(config or {}),
        "optimizer": dict(optimizer or {}),
    }
    _replace(Path(path), arrays, {"mlxfp": json_text(rest)})


def load_state(path: str | os.PathLike[str], like: TrainState) -> Checkpoint:
    """Read what `save_state` wrote, into the structure of `like`: a state of the same model and optimizer.

    Every array is bit for bit what was saved. Raises `CheckpointError`, naming every array that is missing, unexpected, or of another
    shape or dtype than in `like`; and for a file that is damaged or not a checkpoint.

    >>> from tempfile import TemporaryDirectory
    >>> from mlx import nn
    >>> from mlxfp.training.optimization.optimizers import adamw
    >>> from mlxfp.training.steps.state import train_state
    >>> small, large = (train_state(nn.Linear(2, size), adamw(1e-3)) for size in (1, 2))
    >>> with TemporaryDirectory() as folder:
    ...     save_state(f"{folder}/last.safetensors", small)
    ...     try:
    ...         load_state(f"{folder}/last.safetensors", large)
    ...     except CheckpointError as error:
    ...         print("params.weight" in str(error) or str(error))
    True
    """
    check_types(TrainState, like=like)
    arrays, fields = _read(Path(path))
    structure, leaves = flatten(trees_of(like))
    names = paths(structure)
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
    return Checkpoint(TrainState(**trees, step=fields.pop("step"), seed=fields.pop("seed")), **fields)


def load_latest(folder: str | os.PathLike[str], like: TrainState, *, ranks: Ranks | None = None) -> Checkpoint:
    """Read the checkpoint with the most steps that `observers.checkpoint` wrote to a folder; if there is none, `like` begins a new run.

    So the same lines start a run and continue one that was killed. With `ranks`, each rank reads its own checkpoint of the last step that
    all of them have; or, where another number of ranks wrote them, the last one of any rank, which `fit` continues if the global batches
    are the same. Raises what `load_state` raises, and `CheckpointError` where ranks have checkpoints, but none of the same step.

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
    elif (step := _step_of_others(ranks, anywhere := _of_any_rank(folder))) is not None:
        found = anywhere | found
        _check_seen(ranks, step, found, folder)
    else:
        step = _common_step(ranks, found, folder)
    return Checkpoint(like) if step is None else load_state(found[step], like)


def folder_of(folder: str | os.PathLike[str], ranks: Ranks | None) -> Path:
    """Return the folder that the checkpoints of this rank are in."""
    return Path(folder) if ranks is None else Path(folder, f"rank-{ranks.world.rank}")


def _of_any_rank(folder: str | os.PathLike[str]) -> dict[int, Path]:
    return {step: path for each in sorted(Path(folder).glob("rank-*")) for step, path in numbered(each).items()}


def _step_of_others(ranks: Ranks, anywhere: Mapping[int, Path]) -> int | None:
    """Return the last step that any rank has written, if that was a run of another number of ranks."""
    last = max(anywhere, default=-1)
    step, shards = max(ranks.gather([last, 0 if last < 0 else _shards_in(anywhere[last])]))
    return int(step) if shards not in (0, ranks.world.copies) else None


def _shards_in(path: Path) -> int:
    """Return into how many shards the pipeline of a checkpoint divides its rows; 0 where it does not, or the file cannot be read."""
    cursor = head_of(path).get("cursor")
    return 0 if cursor is None else shards_of(Cursor.from_bytes(base64.b64decode(cursor)).identity) or 0


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


def optimizer_of(path: Path) -> dict[str, Any]:
    """Read the settings of the optimizer in a checkpoint, without its arrays; none if there is no such file or it does not have them."""
    return dict(head_of(path).get("optimizer", {}))


def head_of(path: Path) -> dict[str, Any]:
    """Read what a checkpoint has without its arrays; nothing if there is no such file, or it is damaged."""
    try:
        check_head(path)
        loaded: Any = mx.load(str(path), format="safetensors", return_metadata=True)
        return dict(json.loads(loaded[1]["mlxfp"]))
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, AttributeError):  # `load_state` says what is wrong with it
        return {}


def name_of(step: int) -> str:
    """Return the file name of the checkpoint of a step, with zeros so that names sort like numbers."""
    return f"step-{step:08}.safetensors"


def numbered(folder: Path) -> dict[int, Path]:
    """Find the checkpoints in a folder by their step; none if the folder does not exist."""
    return {int(path.stem[5:]): path for path in folder.glob("step-*.safetensors") if re.fullmatch(r"step-\d{8,}", path.stem)}


def remove_unfinished(folder: Path, name: str) -> None:
    """Remove the unfinished files of a process that was killed while it wrote checkpoints of this name or glob pattern."""
    for path in folder.glob(f".{name}.*{PARTIAL}*"):
        path.unlink(missing_ok=True)


def json_text(rest: Mapping[str, Any]) -> str:
    """Write everything in a checkpoint but its arrays as JSON; raises `ArgumentTypeError` for a configuration that JSON cannot hold."""
    try:
        return json.dumps(rest, default=float)  # metrics may be numbers of numpy
    except (TypeError, ValueError) as error:
        raise ArgumentTypeError(
            f"A checkpoint holds what JSON can hold, and the config has something else: {error}. Write it as text."
        ) from error


def _replace(path: Path, arrays: Mapping[str, mx.array], metadata: dict[str, str]) -> None:
    if not path.parent.is_dir():
        raise MissingFileError(f"There is no folder {path.parent} to write {path.name} into. Create it first.")
    if path.is_dir():
        raise CheckpointError(f"{path} is a folder, and a checkpoint is a file. Give a file in it: {path / 'last.safetensors'}.")
    try:
        with written_whole(path, suffix=".safetensors") as file:  # MLX would add this ending to any other
            mx.save_safetensors(str(file), dict(arrays), metadata)
    except RuntimeError as error:  # of MLX
        hint = "Is the disk full, or is writing not allowed there? An older file at this path is unchanged."
        raise CheckpointError(f"{path} could not be written: {str(error).rstrip('.')}. {hint}") from error


def _read(path: Path) -> tuple[dict[str, mx.array], dict[str, Any]]:
    """Return the arrays of a checkpoint, and the other fields of `TrainState` and `Checkpoint`."""
    if not path.is_file():
        raise MissingFileError(f"There is no checkpoint at {path}. Check the path, or write one with save_state.")
    try:
        check_head(path)
        loaded: Any = mx.load(str(path), format="safetensors", return_metadata=True)
        arrays, metadata = loaded
        mx.eval(arrays)  # now: MLX reads lazily, and later there may be another file at the path
        rest = json.loads(metadata["mlxfp"])
        version = rest["format"], rest["version"]
        fields = _fields(rest) if version == _FORMAT else {}
    except (RuntimeError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError) as error:
        raise CheckpointError(f"{path} is not a checkpoint, or is damaged: {error}. Use a file that save_state wrote.") from error
    if version != _FORMAT:
        raise CheckpointError(
            f"{path} has the format {version}, and this version of mlxfp reads {_FORMAT}. Read it with the mlxfp that wrote it."
        )
    return arrays, {**fields, "cursor": None if fields["cursor"] is None else Cursor.from_bytes(fields["cursor"])}


def _fields(rest: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "step": int(rest["step"]),
        "seed": int(rest["seed"]),
        "cursor": rest["cursor"] and base64.b64decode(rest["cursor"], validate=True),
        "history": tuple(Evaluation(int(step), dict(metrics)) for step, metrics in rest["history"]),
        "config": dict(rest["config"]),
        "optimizer": dict(rest.get("optimizer", {})),  # older files have none
        "running": RunningMetrics(
            {name: (float(total), float(weight)) for name, (total, weight) in rest["running"]["totals"].items()},
            tuple({name: float(value) for name, value in metrics.items()} for metrics in rest["running"]["unread"]),
            rest["running"].get("batches"),  # older files have none
        ),
    }
