"""Workers do the part of collating that needs no MLX: the same batches, cursors and errors."""

from functools import partial
from importlib.util import find_spec
from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.testing.laws import assert_plans_agree, assert_runners_agree
from tests.collators.groups import groups
from tests.properties.collators.test_battery import Case, every_collator

MEL = fp.audio.LogMel(8000, size=64, hop=32, mels=8)
TWO = fp.prefetch(3, workers=2)

needs_pillow = pytest.mark.skipif(find_spec("PIL") is None, reason="decoding images needs Pillow: pip install 'mlxfp[vision]'")


def png(shape: tuple[int, ...], number: int) -> bytes:
    from PIL import Image

    file = BytesIO()
    Image.fromarray(np.random.default_rng(number).integers(0, 256, shape, dtype=np.uint8)).save(file, "PNG")
    return file.getvalue()


def images(count: int) -> Any:
    return [{"image": png((6 + place % 3, 5, 3), place), "y": place % 3, "input_ids": [place] * (1 + place % 4)} for place in range(count)]


def sounds(count: int) -> Any:
    rng = np.random.default_rng(0)
    return [{"waveform": rng.normal(size=100 + 30 * place).tolist(), "rate": 8000, "y": place} for place in range(count)]


@every_collator
@settings(max_examples=5)
@given(data=st.data())
def test_every_collator_gives_the_same_with_workers(case: Case, data: st.DataObject):
    rows = fp.from_examples(data.draw(groups(case.names)))
    for batches in (
        fp.pipe(rows, fp.batch(2), fp.collate(case.collator)),
        fp.pipe(rows, fp.shuffle(seed=1), fp.batch(3), fp.collate(case.collator)),
    ):
        assert_runners_agree(batches, TWO, epoch=1)


@needs_pillow
@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_files_are_decoded_and_spectrograms_made_by_workers(kind: Any):
    rows = [image | sound for image, sound in zip(images(13), sounds(13), strict=True)]
    parts = [fp.collators.text(pad_id=0, label="y"), fp.collators.vision(size=(3, 4)), fp.collators.audio(spectrogram=MEL, length=20)]
    batches = fp.pipe(fp.from_examples(rows), fp.shuffle(seed=0), fp.batch(4), fp.map(dict), fp.collate(fp.collators.multimodal(parts)))
    line = fp.prefetch(2, workers=2, kind=kind)
    for shared in ("stacked(image='image'", "log_mel("):
        assert shared in fp.explain(line(batches))
    assert_runners_agree(batches, line)


@needs_pillow
@pytest.mark.parametrize(
    "collator", [fp.collators.vision(size=(4, 6), label="y", classes=3), fp.collators.vision(size=(4, 4), mode="grey")]
)
def test_every_plan_of_pictures_gives_the_same(collator: Any):
    batches = fp.pipe(fp.from_examples(images(13)), fp.batch(4), fp.collate(collator))
    assert_runners_agree(batches, TWO)
    assert_plans_agree(batches)


def wrong_rate(rows: Any) -> Any:
    return [*rows[:6], {**rows[6], "rate": 4000}, *rows[7:]]


def damaged(rows: Any) -> Any:
    return [*rows[:6], {**rows[6], "image": b"no image"}, *rows[7:]]


def too_high(rows: Any) -> Any:
    return [*rows[:6], {**rows[6], "y": 9}, *rows[7:]]


@needs_pillow
@pytest.mark.parametrize(
    ("rows", "collator"),
    [
        (damaged(images(13)), fp.collators.vision(size=(4, 4))),
        (too_high(images(13)), fp.collators.vision(size=(4, 4), label="y", classes=3)),
        (images(13), fp.collators.vision()),  # of different sizes
        (wrong_rate(sounds(9)), fp.collators.audio(spectrogram=MEL)),
        (sounds(9), fp.collators.audio(spectrogram=MEL, length=9)),  # too long
        (too_high(sounds(9)), fp.collators.audio(spectrogram=MEL, label="y", classes=9)),
    ],
)
def test_an_error_is_the_one_that_is_raised_without_workers(rows: Any, collator: Any):
    batches = fp.pipe(fp.from_examples(rows), fp.batch(4), fp.collate(collator))
    assert_runners_agree(batches, TWO)
    notes = []
    for line in (fp.prefetch(1), TWO):
        with pytest.raises(Exception) as error:  # noqa: PT011  # which one, the law above says
            list(fp.iterate(line(batches)))
        notes.append([note for note in error.value.__notes__ if note.startswith("collating source rows")])
        assert error.value.__context__ is None or type(error.value.__context__).__name__ == "UnusableImageError"
    assert notes[0] == notes[1]
    assert len(notes[0]) == 1


def test_a_column_that_two_collators_read_is_left_to_them():
    schema = pa.schema({"image": pa.binary(), "input_ids": pa.list_(pa.int32())})
    parts: Any = fp.collators.multimodal([fp.collators.vision(), fp.collators.text(pad_id=0)]).prepared(schema)  # type: ignore[attr-defined]
    assert parts.columns == ("image",)
    for other in (partial(dict), fp.collators.foreign(dict), fp.collators.vision(image="image", carry=())):
        both: Any = fp.collators.multimodal([fp.collators.vision(size=(2, 2)), other])
        assert both.prepared(schema) is None


@needs_pillow
def test_profile_counts_batches_once_and_adds_the_time_of_workers():
    found = fp.inspect.profile(
        fp.pipe(fp.from_examples(images(30)), fp.shuffle(seed=0), fp.batch(4), fp.collate(fp.collators.vision(size=(64, 64))), TWO)
    )
    line = next(part for part in found.parts if "collate(" in part.part)
    assert line.count == 8
    assert line.seconds > 0
    assert found.count == 8


def test_tensors_of_a_table_are_stacked_as_before():
    pixels = fp.from_table({"image": np.zeros((9, 2, 2, 3), np.uint8)})
    shared = fp.pipe(pixels, fp.shuffle(seed=0), fp.batch(4), fp.collate(fp.collators.vision()), TWO)
    assert "2 threads share nothing" in fp.explain(shared)
    assert_runners_agree(fp.pipe(pixels, fp.shuffle(seed=0), fp.batch(4), fp.collate(fp.collators.vision())), TWO)
