"""Bugs of the sort that people write, planted in collators and loaders that need no MLX, and which of them the laws find.

A new kind of bug joins with a function and a line in a table.
"""

from collections import UserDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st

from mlxfp.testing import audit, laws

Batch = dict[str, Any]
GROUPS = st.lists(
    st.fixed_dictionaries(
        {
            "input_ids": st.lists(st.integers(1, 300), min_size=1, max_size=5),
            "y": st.integers(0, 3),
            "weight": st.sampled_from([0.0, 0.25, 1.5]),
        }
    ),
    min_size=1,
    max_size=5,
)


@pytest.fixture(autouse=True)
def _few_cases():
    """Each check is a whole test of its own."""
    before = settings.get_current_profile_name()
    settings.register_profile("some", settings.get_profile(before), max_examples=30)
    settings.load_profile("some")
    yield
    settings.load_profile(before)


def padded(rows: Sequence[Sequence[int]], value: int = 0, *, width: int | None = None, left: bool = False) -> Any:
    width = max(map(len, rows)) if width is None else width
    return np.array(
        [[*[value] * (left * (width - len(row))), *row, *[value] * ((not left) * (width - len(row)))] for row in rows], np.int32
    )


def right(examples: Sequence[Mapping[str, Any]]) -> Batch:
    """Pad token ids; a label is the next token."""
    rows = [list(example["input_ids"]) for example in examples]
    width = max(map(len, rows))
    return {
        "input_ids": padded(rows),
        "attention_mask": padded([[1] * len(row) for row in rows]),
        "labels": padded([row[1:] for row in rows], -100, width=width),
        "y": np.array([example["y"] for example in examples], np.int32),
        "weight": np.array([example["weight"] for example in examples], np.float32),
    }


MASKS = {"attention_mask": "input_ids"}
STATED: dict[str, Any] = {
    "masks": MASKS,
    "padding": {"input_ids": 0},
    "labels": {"labels": ("input_ids", 1, -100)},
    "carries": {"weight": "weight", "y": "y"},
    "dtypes": {"input_ids": "int32", "attention_mask": "int32", "weight": "float32"},
}


def as_mapping(examples: Any) -> Any:
    return UserDict(right(examples))


def as_mlx(examples: Any) -> Any:
    return {name: mx.array(values) for name, values in right(examples).items()}


def with_names(examples: Any) -> Any:
    return {**right(examples), "names": [str(example["y"]) for example in examples], "more": {"y": right(examples)["y"]}}


@pytest.mark.parametrize("collator", [right, as_mapping, as_mlx, with_names])
def test_a_collator_that_is_right_breaks_no_law_whatever_its_batches_are(collator: Any):
    laws.check(collator, examples=GROUPS, **STATED)


def test_a_tuple_has_arrays_by_place():
    def pair(examples: Any) -> Any:
        return right(examples)["input_ids"], right(examples)["y"]

    laws.check(pair, examples=GROUPS, padding={"0": 0}, carries={"1": "y"})
    with pytest.raises(AssertionError, match=r"'0' of .*pair is padded with 9, but example 0 with 0"):
        laws.check(pair, examples=GROUPS, padding={"0": 9})


def rolled_labels(examples: Any) -> Batch:
    batch = right(examples)
    return {**batch, "labels": np.roll(batch["input_ids"], -1, axis=1)}


def rolled_over_rows(examples: Any) -> Batch:
    batch = right(examples)
    return {**batch, "labels": np.roll(batch["input_ids"].ravel(), -1).reshape(batch["input_ids"].shape)}


def mask_too_long(examples: Any) -> Batch:
    batch = right(examples)
    lengths = batch["attention_mask"].sum(axis=1, keepdims=True)
    return {**batch, "attention_mask": (np.arange(batch["input_ids"].shape[1]) <= lengths).astype(np.int32)}


def mask_of_ones(examples: Any) -> Batch:
    batch = right(examples)
    return {**batch, "attention_mask": np.ones_like(batch["attention_mask"])}


def sorted_rows(examples: Any) -> Batch:
    return right(sorted(examples, key=lambda example: -len(example["input_ids"])))


def sorted_ids_only(examples: Any) -> Batch:
    batch = right(examples)
    return {**batch, "input_ids": sorted_rows(examples)["input_ids"], "attention_mask": sorted_rows(examples)["attention_mask"]}


def cut_to_the_first(examples: Any) -> Batch:
    length = len(examples[0]["input_ids"])
    return right([{**example, "input_ids": example["input_ids"][:length]} for example in examples])


def dtype_by_value(examples: Any) -> Batch:
    batch = right(examples)
    return {**batch, "input_ids": batch["input_ids"].astype(np.min_scalar_type(batch["input_ids"].max()))}


def appends_in_place(examples: Any) -> Batch:
    for example in examples:
        example["input_ids"].append(7)
    return right(examples)


def pops(examples: Any) -> Batch:
    labels = [example.pop("y") for example in examples]
    return right([{**example, "y": label} for example, label in zip(examples, labels, strict=True)])


def drops_an_odd_one(examples: Any) -> Batch:
    return right(examples[: max(1, len(examples) // 2 * 2)])


def drops_duplicates(examples: Any) -> Batch:
    return right([example for place, example in enumerate(examples) if example not in examples[:place]])


def normalised_over_the_batch(examples: Any) -> Batch:
    batch = right(examples)
    return {**batch, "weight": batch["weight"] - batch["weight"].mean()}


CALLS: list[int] = []


def counts_calls(examples: Any) -> Batch:
    CALLS.append(1)
    return {**right(examples), "step": np.full(len(examples), len(CALLS))}


def draws_globally(examples: Any) -> Batch:
    batch = right(examples)
    return {**batch, "input_ids": np.where(np.random.random(batch["input_ids"].shape) < 0.5, 1, batch["input_ids"])}  # noqa: NPY002  # the bug


BUFFER = np.zeros((99, 99), np.int32)


def reuses_a_buffer(examples: Any) -> Batch:
    batch = right(examples)
    rows, width = batch["input_ids"].shape
    BUFFER[:rows, :width] = batch["input_ids"]
    return {**batch, "input_ids": BUFFER[:rows, :width]}


def label_of_the_neighbour(examples: Any) -> Batch:
    batch = right(examples)
    return {**batch, "y": np.roll(batch["y"], 1)}


def squeezes_one(examples: Any) -> Batch:
    return {name: values.squeeze() for name, values in right(examples).items()}


def labels_not_shifted(examples: Any) -> Batch:
    batch = right(examples)
    return {**batch, "labels": np.where(batch["attention_mask"] == 1, batch["input_ids"], -100)}


def ids_left_mask_right(examples: Any) -> Batch:
    return {**right(examples), "input_ids": padded([example["input_ids"] for example in examples], left=True)}


WIDEST = [0]


def only_grows(examples: Any) -> Batch:
    WIDEST[0] = max(WIDEST[0], *(len(example["input_ids"]) for example in examples))
    batch, width = right(examples), WIDEST[0]
    fillers = {"input_ids": 0, "attention_mask": 0, "labels": -100}
    return batch | {name: padded(batch[name].tolist(), filler, width=width) for name, filler in fillers.items()}


def labels_padded_with_a_class(examples: Any) -> Batch:
    batch = right(examples)
    return {**batch, "labels": np.where(batch["labels"] == -100, 0, batch["labels"])}


def wrong_pad_id(examples: Any) -> Batch:
    batch = right(examples)
    return {**batch, "input_ids": np.where(batch["attention_mask"] == 0, 1, batch["input_ids"])}


def float64_always(examples: Any) -> Batch:
    batch = right(examples)
    return {**batch, "weight": batch["weight"].astype(np.float64)}


def no_weight_of_zero(examples: Any) -> Batch:
    return right([{**example, "weight": example["weight"] or 1.0} for example in examples])


def left_throughout(examples: Any) -> Batch:
    rows = [list(example["input_ids"]) for example in examples]
    width, batch = max(map(len, rows)), right(examples)
    labels = padded([[*row[1:], -100] for row in rows], -100, width=width, left=True)
    return {**batch, "input_ids": padded(rows, left=True), "attention_mask": batch["attention_mask"][:, ::-1], "labels": labels}


def positions_over_padding(examples: Any) -> Batch:
    batch = right(examples)
    return {**batch, "positions": np.broadcast_to(np.arange(batch["input_ids"].shape[1]), batch["input_ids"].shape)}


def numbers_by_appearance(examples: Any, seen: dict[int, int] = {}) -> Batch:  # noqa: B006  # the bug
    return {**right(examples), "y": np.array([seen.setdefault(example["y"], len(seen)) for example in examples], np.int32)}


# What is stated is what the law needs; the first 18 need the masks at most. Left padding and such positions are right in many models.
COLLATORS: list[tuple[Callable[..., Any], str, bool]] = [
    (rolled_labels, "", True),
    (rolled_over_rows, "", True),
    (mask_too_long, "masks", True),
    (mask_of_ones, "masks", True),
    (sorted_rows, "", True),
    (sorted_ids_only, "", True),
    (cut_to_the_first, "", True),
    (dtype_by_value, "", True),
    (appends_in_place, "", True),
    (pops, "", True),
    (drops_an_odd_one, "", True),
    (drops_duplicates, "", True),
    (normalised_over_the_batch, "", True),
    (counts_calls, "", True),
    (draws_globally, "", True),
    (reuses_a_buffer, "", True),
    (label_of_the_neighbour, "", True),
    (squeezes_one, "", True),
    (labels_not_shifted, "labels", True),
    (ids_left_mask_right, "masks", True),
    (only_grows, "", True),
    (labels_padded_with_a_class, "labels", True),
    (wrong_pad_id, "padding", True),
    (float64_always, "dtypes", True),
    (no_weight_of_zero, "carries", True),
    (left_throughout, "masks padding labels carries dtypes", False),
    (positions_over_padding, "masks padding labels carries dtypes", False),
    (numbers_by_appearance, "", True),
]


@pytest.mark.parametrize(("collator", "stated", "found"), COLLATORS, ids=[collator.__name__ for collator, _, _ in COLLATORS])
def test_bugs_of_collators(collator: Callable[..., Any], stated: str, found: bool):
    given = {name: STATED[name] for name in stated.split()}
    if not found:
        laws.check(collator, examples=GROUPS, **given)
        return
    with pytest.raises(AssertionError, match=collator.__name__):
        laws.check(collator, examples=GROUPS, **given)


ROWS, SIZE = 24, 5
Order = Callable[[int, int, int], Sequence[Any]]


def batches(order: Any) -> list[list[int]]:
    return [list(map(int, order[first : first + SIZE])) for first in range(0, len(order), SIZE)]


def permutation(seed: int, epoch: int, rows: int = ROWS) -> Any:
    return np.random.default_rng([seed, epoch]).permutation(rows)


def well(seed: int, epoch: int, workers: int) -> Any:
    return batches(permutation(seed, epoch))


def loader(order: Order = well, *, resumed: Callable[[int], int] = lambda place: place, epoch_of: Any = None) -> audit.Loader:
    """A loader that yields `order(seed, epoch, workers)`, and begins at `resumed(place)` of it when it is resumed at a place."""

    def run(seed: int, epoch: int, workers: int, state: Any) -> Iterator[Any]:
        items = order(seed, epoch if state is None or epoch_of is None else epoch_of, workers)
        for place in range(0 if state is None else resumed(state), len(items)):
            yield items[place], place + 1

    return audit.Loader("planted", ROWS, run)


def interleaved(seed: int, epoch: int, workers: int) -> Any:
    items = well(seed, epoch, 0)
    return [item for worker in range(workers or 1) for item in items[worker :: workers or 1]]


def fills_the_last(seed: int, epoch: int, workers: int) -> Any:
    order = permutation(seed, epoch)
    return batches([*order, *order[: -len(order) % SIZE]])


def within_blocks(seed: int, epoch: int, workers: int) -> Any:
    random = np.random.default_rng([seed, epoch])
    return batches(np.concatenate([random.permutation(4) + first for first in range(0, ROWS, 4)]))


def changes_its_state(seed: int, epoch: int, workers: int, state: Any) -> Iterator[Any]:
    items, state = well(seed, epoch, workers), {"place": 0} if state is None else dict(state)
    while state["place"] < len(items):
        item = items[state["place"]]
        state["place"] += 1
        yield item, state


def changes_the_state_given(seed: int, epoch: int, workers: int, state: Any) -> Iterator[Any]:
    items = well(seed, epoch, workers)
    for place in range(0 if state is None else state.pop("place", 0), len(items)):
        yield items[place], {"place": place + 1}


def starts_again_after_the_last(seed: int, epoch: int, workers: int, state: Any) -> Iterator[Any]:
    items = well(seed, epoch, workers)
    for place in range(0 if state in (None, len(items)) else state, len(items)):
        yield items[place], place + 1


def fails_after_the_last(seed: int, epoch: int, workers: int, state: Any) -> Iterator[Any]:
    items, place = well(seed, epoch, workers), state or 0
    while True:
        yield items[place], (place := place + 1)
        if place == len(items):
            return


class Packing:
    """Joins rows of 7 to batches of 5, and forgets the rest in its state."""

    def __call__(self, seed: int, epoch: int, workers: int, state: Any) -> Iterator[Any]:
        order, left = permutation(seed, epoch), []
        for first in range(0 if state is None else state, ROWS, 7):
            left += map(int, order[first : first + 7])
            while len(left) >= SIZE:
                item, left = left[:SIZE], left[SIZE:]
                yield item, first + 7
        if left:
            yield left, ROWS


def of(run: Any) -> audit.Loader:
    return audit.Loader("planted", ROWS, run)


def first_row_first(seed: int, epoch: int, workers: int) -> Any:
    return batches([0, *(row for row in permutation(seed, epoch) if row)])


# (loader, the law that it breaks, what else is asked for)
LOADERS: dict[str, tuple[audit.Loader, str, dict[str, Any]]] = {
    "drops the last batch": (loader(lambda seed, epoch, workers: well(seed, epoch, 0)[:-1]), "permutation", {}),
    "fills the last batch": (loader(fills_the_last), "permutation", {}),
    "with replacement": (
        loader(lambda seed, epoch, _: batches(np.random.default_rng([seed, epoch]).choice(ROWS, ROWS))),
        "permutation",
        {},
    ),
    "seed ignored": (loader(lambda seed, epoch, _: well(0, epoch, 0)), "orders", {}),
    "resumed in the order of epoch 0": (loader(epoch_of=0), "resume", {}),
    "workers interleaved": (loader(interleaved), "workers", {}),
    "each worker reads all": (loader(lambda seed, epoch, workers: well(seed, epoch, 0) * (workers or 1)), "workers", {}),
    "starts again after the last": (of(starts_again_after_the_last), "resume", {}),
    "fails after the last": (of(fails_after_the_last), "resume", {}),
    "state changed in place": (of(changes_its_state), "resume", {}),
    "shuffled within blocks": (loader(within_blocks), "uniform", {"uniform": True}),
    "given state changed": (of(changes_the_state_given), "resume", {}),
    "rows held across batches": (of(Packing()), "resume", {}),
    "begun at another row": (loader(lambda seed, epoch, _: batches(np.roll(permutation(seed, 0), epoch))), "orders", {}),
    "batches shuffled, not rows": (
        loader(lambda seed, epoch, _: permutation(seed, epoch, ROWS // 4).repeat(4).reshape(-1, 4) * 4 + np.arange(4)),
        "uniform",
        {"uniform": True},
    ),
    "one row is always first": (loader(first_row_first), "uniform", {"uniform": True}),
    "seeded by workers": (loader(lambda seed, epoch, workers: well(seed + 1000 * workers, epoch, 0)), "workers", {}),
}


@pytest.mark.parametrize(("planted", "law", "asked"), LOADERS.values(), ids=LOADERS)
def test_bugs_of_loaders(planted: audit.Loader, law: str, asked: dict[str, Any]):
    assert law in {finding.law for finding in audit.examine(planted, **asked)}
