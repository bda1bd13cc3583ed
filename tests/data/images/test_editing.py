"""All stages of images: the laws of stages, and neighbours that run as one."""

import pickle
import sys
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.core.chunks import number_rows
from mlxfp.core.datasets import unoptimized
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, DataError, MissingExtraError, UnknownNameError
from mlxfp.testing import laws
from tests.data.images.pictures import PIXELS, TENSORS, as_image, encoded, files, pixels_of, smooth

# Each stage, and one that does something else.
MEMBERS: dict[str, tuple[Any, Any]] = {
    "decode": (fp.images.decode(mode="grey"), fp.images.decode()),
    "resize": (fp.images.resize((3, 7)), fp.images.resize((7, 3))),
    "resize without antialiasing": (fp.images.resize((3, 3), antialias=False), fp.images.resize((3, 3))),
    "resize_short_side": (fp.images.resize_short_side(3), fp.images.resize_short_side(2)),
    "center_crop": (fp.images.center_crop((2, 3)), fp.images.center_crop((1, 1))),
    "random_crop": (fp.images.random_crop((4, 5), seed=0, padding=2), fp.images.random_crop((4, 5), seed=1, padding=2)),
    "random_resized_crop": (fp.images.random_resized_crop((3, 3), seed=0), fp.images.random_resized_crop((3, 3), seed=1)),
    "random_flip": (fp.images.random_flip(seed=0), fp.images.random_flip(seed=0, vertical=True)),
    "color_jitter": (
        fp.images.color_jitter(seed=0, brightness=0.5, contrast=0.5, saturation=0.5, hue=0.3),
        fp.images.color_jitter(seed=0, hue=0.3),
    ),
}
SEVERAL = [smooth(shape, seed) for seed, shape in enumerate([(9, 7, 3), (5, 6, 3), (8, 8, 1), (4, 9, 3), (6, 5, 3)])]
FILES = files(SEVERAL)


@pytest.mark.parametrize("name", MEMBERS)
def test_the_laws_of_stages_hold(name: str):
    rows = st.lists(st.integers(0, 99).map(lambda seed: {"image": smooth((4, 5, 3), seed)}), min_size=1, max_size=4)
    laws.check(MEMBERS[name][0], schema=TENSORS, examples=rows, ahead=0)


@pytest.mark.parametrize("name", MEMBERS)
def test_the_laws_of_datasets_hold_for_files(name: str):
    laws.check(fp.pipe(FILES, MEMBERS[name][0]))


@pytest.mark.parametrize("name", MEMBERS)
def test_a_stage_is_a_value(name: str):
    stage, other = MEMBERS[name]
    assert pickle.loads(pickle.dumps(stage)) == stage != other
    assert fp.inspect.fingerprint(fp.pipe(FILES, stage)) != fp.inspect.fingerprint(fp.pipe(FILES, other))
    written: Any = eval(repr(stage), {each.__name__: each for each in _FUNCTIONS})
    assert written == stage


_FUNCTIONS = [
    fp.images.decode,
    fp.images.resize,
    fp.images.resize_short_side,
    fp.images.center_crop,
    fp.images.random_crop,
    fp.images.random_resized_crop,
    fp.images.random_flip,
    fp.images.color_jitter,
]


@settings(deadline=None)
@given(names=st.lists(st.sampled_from(list(MEMBERS)), min_size=2, max_size=4))
def test_neighbours_that_run_as_one_give_what_they_give_one_after_the_other(names: list[str]):
    dataset = fp.pipe(FILES, fp.images.resize((9, 9)), *(MEMBERS[name][0] for name in names))
    laws.assert_plans_agree(dataset)
    apart = dataset
    for stage in dataset.stages:
        assert stage in apart.stages
    whole = fp.pipe(dataset, fp.select_columns(["image"]))
    assert any("run as one" in line for line in whole.plan.rewrites)
    (step,) = (step for step in whole.plan.steps if step.stop - step.index > 1)
    assert np.array_equal(pixels_of(whole), pixels_of(unoptimized(whole)))
    assert step.index == 0


@settings(deadline=None)
@given(
    names=st.lists(st.sampled_from(list(MEMBERS)), min_size=1, max_size=3),
    mode=st.sampled_from(["rgb", "grey"]),
    size=st.sampled_from([(9, 9), (400, 500)]),  # all images together, or one or two of them
)
def test_images_of_one_size_become_what_they_become_one_by_one(names: list[str], mode: Any, size: tuple[int, int]):
    several = [smooth((9, 8, 3), seed) for seed in range(5)]
    each = fp.pipe(files(several), fp.images.decode(mode=mode))  # of no known size
    whole = fp.pipe(fp.from_table({"image": np.stack(pixels_of(each))}), fp.images.resize(size))
    stages = [MEMBERS[name][0] for name in names]
    found = pixels_of(fp.pipe(whole, *stages))
    apart = fp.pipe(each, fp.images.resize(size), *stages)
    assert all(np.array_equal(made, expected) for made, expected in zip(found, pixels_of(unoptimized(apart)), strict=True))


def test_an_error_names_the_row_though_images_are_changed_together():
    tensors = fp.from_table({"image": np.repeat(PIXELS, 3, axis=0)})
    with pytest.raises(DataError, match=r"images\.center_crop: column 'image' of source row 0: the image has 3 x 3 pixels"):
        list(fp.pipe(tensors, fp.images.resize((3, 3)), fp.images.center_crop((3, 4))))


def test_an_error_names_the_stage_that_failed_though_several_run_as_one():
    dataset = fp.pipe(FILES, fp.images.decode(), fp.images.resize_short_side(3), fp.images.center_crop((3, 4)))
    message = (
        r"images\.center_crop: column 'image' of source row 0 \(0\.png\): the image has 3 x 3 pixels \(height x width\), too few .* 3 x 4\."
    )
    with pytest.raises(DataError, match=message):
        list(dataset)


@pytest.mark.parametrize(
    "stages",
    [
        [fp.images.decode()],
        [fp.images.resize((3, 3))],
        [fp.images.resize_short_side(3), fp.images.random_flip(seed=0), fp.images.center_crop((3, 3))],
    ],
)
def test_a_damaged_file_is_a_skipped_row(tmp_path: Path, stages: list[Any]):
    for place, pixels in enumerate(SEVERAL):
        (tmp_path / f"{place}.png").write_bytes(b"nothing" if place in (1, 3) else encoded(as_image(pixels)))
    dataset = fp.pipe(fp.read_images(tmp_path), *stages, fp.on_error("skip"))
    *_, (_, cursor) = fp.iterate(dataset)
    assert [row["path"] for row in dataset] == ["0.png", "2.png", "4.png"]
    assert [row.origin.row for row in fp.inspect.skipped_rows(dataset, cursor)] == [1, 3]
    assert all("cannot be decoded" in row.reason for row in fp.inspect.skipped_rows(dataset, cursor))


@pytest.mark.parametrize("name", [name for name, (stage, _) in MEMBERS.items() if stage.traits.draws])
def test_what_is_drawn_depends_on_the_row_and_the_epoch_only(name: str):
    rows = fp.from_table({"image": np.repeat(PIXELS[:1], 40, axis=0), "row": np.arange(40)})
    dataset = fp.pipe(rows, MEMBERS[name][0])
    plain = {row["row"]: row["image"].tobytes() for row in dataset}
    assert {row["row"]: row["image"].tobytes() for row in fp.pipe(rows, fp.shuffle(seed=3), MEMBERS[name][0])} == plain
    assert len(set(plain.values())) > 1
    assert {row["row"]: row["image"].tobytes() for row, _ in fp.iterate(dataset, epoch=1)} != plain


def test_threads_that_share_a_stage_make_the_same_images():
    chunk = number_rows(FILES.source.take(0, np.arange(5)), 0, 0)
    stages = [stage for stage, _ in MEMBERS.values() if stage != MEMBERS["center_crop"][0]]
    found: list[Any] = []

    def work() -> None:
        found.append([stage.apply(chunk) for _ in range(5) for stage in stages])

    threads = [Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(batches == found[0] for batches in found)


def test_groups_are_changed_too():
    (group,) = fp.pipe(FILES, fp.batch(5), fp.images.resize((2, 2)))
    assert group.column("image").to_numpy_ndarray().shape == (5, 2, 2, 3)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: fp.images.decode(mode="gray"), UnknownNameError, "No mode is named 'gray'. Did you mean 'grey'"),
        (lambda: fp.images.resize(32), ArgumentError, r"size must be \(height, width\), got 32"),
        (lambda: fp.images.resize((32, 0)), ArgumentError, "width must be at least 1"),
        (lambda: fp.images.resize((32, 32), antialias=1), ArgumentTypeError, "antialias must be bool"),
        (lambda: fp.images.resize_short_side(0), ArgumentError, "length must be at least 1"),
        (lambda: fp.images.center_crop((1, 1), image=None), ArgumentTypeError, "image must be a string"),
        (lambda: fp.images.random_crop((1, 1), seed=0, padding=-1), ArgumentError, "padding must be at least 0"),
        (lambda: fp.images.random_crop((1, 1), seed=None), ArgumentTypeError, "seed must be an int"),
        (
            lambda: fp.images.random_resized_crop((1, 1), seed=0, scale=(0.5, 1.5)),
            ArgumentError,
            r"scale must be a pair .* at most 1, in increasing",
        ),
        (
            lambda: fp.images.random_resized_crop((1, 1), seed=0, scale=(0.5, 0.1)),
            ArgumentError,
            r"numbers above 0, at most 1, in increasing order, got \(0.5, 0.1\)",
        ),
        (
            lambda: fp.images.random_resized_crop((1, 1), seed=0, ratio=2),
            ArgumentError,
            r"ratio must be a pair \(minimum, maximum\), got 2",
        ),
        (lambda: fp.images.random_resized_crop((1, 1), seed=0, ratio=(0, 1)), ArgumentError, "numbers above 0, in increasing order"),
        (lambda: fp.images.random_flip(seed=0, probability=2), ArgumentError, "probability must be from 0 to 1, got 2"),
        (lambda: fp.images.color_jitter(seed=0), ArgumentError, "changes nothing without an amount"),
        (lambda: fp.images.color_jitter(seed=0, hue=0.6), ArgumentError, "hue must be at least 0 and at most 0.5, got hue=0.6"),
        (lambda: fp.images.color_jitter(seed=0, contrast=-1), ArgumentError, "contrast must be at least 0, got contrast=-1"),
        (lambda: fp.images.color_jitter(seed=0, contrast=float("nan")), ArgumentError, "contrast must be at least 0"),
    ],
)
def test_arguments_that_cannot_be_are_refused_at_once(call: Any, error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        call()


def test_without_pillow_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    for name in ("PIL", "PIL.Image"):
        monkeypatch.setitem(sys.modules, name, None)
    for call in (
        fp.images.decode,
        lambda: fp.images.resize((2, 2)),
        lambda: fp.images.resize_short_side(2),
        lambda: fp.images.random_resized_crop((2, 2), seed=0),
    ):
        with pytest.raises(MissingExtraError, match=r'images\.\w+ needs PIL\. Install it with: pip install "mlxfp\[vision\]"'):
            call()
    cropped = fp.pipe(fp.from_table({"image": PIXELS}), fp.images.random_crop((2, 2), seed=0), fp.images.random_flip(seed=0))
    assert len(pixels_of(cropped)) == 3
    with pytest.raises(MissingExtraError, match=r"images\.center_crop needs PIL"):
        list(fp.pipe(fp.from_examples([{"image": b"x"}]), fp.images.center_crop((2, 2))))
