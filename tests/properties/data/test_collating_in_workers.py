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

from mlxfp.collators import LogMel, audio, foreign, multimodal, text, vision
from mlxfp.collators.collating import collate
from mlxfp.core.describing import explain
from mlxfp.core.execution import iterate
from mlxfp.core.pipelines import pipe
from mlxfp.data.inspection.profiling import profile
from mlxfp.data.lengths.batching import batch
from mlxfp.data.rows.map_filter import map
from mlxfp.data.rows.shuffling import shuffle
from mlxfp.data.running.prefetching import prefetch
from mlxfp.data.sources.in_memory import from_examples, from_table
from mlxfp.testing.laws import assert_plans_agree, assert_runners_agree
from tests.collators.groups import groups
from tests.properties.collators.test_battery import Case, every_collator

MEL = LogMel(8000, size=64, hop=32, mels=8)
TWO = prefetch(3, workers=2)

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
    rows = from_examples(data.draw(groups(case.names)))
    for batches in (pipe(rows, batch(2), collate(case.collator)), pipe(rows, shuffle(seed=1), batch(3), collate(case.collator))):
        assert_runners_agree(batches, TWO, epoch=1)


@needs_pillow
@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_files_are_decoded_and_spectrograms_made_by_workers(kind: Any):
    rows = [image | sound for image, sound in zip(images(13), sounds(13), strict=True)]
    parts = [text(pad_id=0, label="y"), vision(size=(3, 4)), audio(spectrogram=MEL, length=20)]
    batches = pipe(from_examples(rows), shuffle(seed=0), batch(4), map(dict), collate(multimodal(parts)))
    line = prefetch(2, workers=2, kind=kind)
    for shared in ("stacked(image='image'", "log_mel("):
        assert shared in explain(line(batches))
    assert_runners_agree(batches, line)


@needs_pillow
@pytest.mark.parametrize("collator", [vision(size=(4, 6), label="y", classes=3), vision(size=(4, 4), mode="grey")])
def test_every_plan_of_pictures_gives_the_same(collator: Any):
    batches = pipe(from_examples(images(13)), batch(4), collate(collator))
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
        (damaged(images(13)), vision(size=(4, 4))),
        (too_high(images(13)), vision(size=(4, 4), label="y", classes=3)),
        (images(13), vision()),  # of different sizes
        (wrong_rate(sounds(9)), audio(spectrogram=MEL)),
        (sounds(9), audio(spectrogram=MEL, length=9)),  # too long
        (too_high(sounds(9)), audio(spectrogram=MEL, label="y", classes=9)),
    ],
)
def test_an_error_is_the_one_that_is_raised_without_workers(rows: Any, collator: Any):
    batches = pipe(from_examples(rows), batch(4), collate(collator))
    assert_runners_agree(batches, TWO)
    notes = []
    for line in (prefetch(1), TWO):
        with pytest.raises(Exception) as error:  # noqa: PT011  # which one, the law above says
            list(iterate(line(batches)))
        notes.append([note for note in error.value.__notes__ if note.startswith("collating source rows")])
        assert error.value.__context__ is None or type(error.value.__context__).__name__ == "UnusableImageError"
    assert notes[0] == notes[1]
    assert len(notes[0]) == 1


def test_a_column_that_two_collators_read_is_left_to_them():
    schema = pa.schema({"image": pa.binary(), "input_ids": pa.list_(pa.int32())})
    parts: Any = multimodal([vision(), text(pad_id=0)]).prepared(schema)  # type: ignore[attr-defined]
    assert parts.columns == ("image",)
    for other in (partial(dict), foreign(dict), vision(image="image", carry=())):
        both: Any = multimodal([vision(size=(2, 2)), other])
        assert both.prepared(schema) is None


@needs_pillow
def test_profile_counts_batches_once_and_adds_the_time_of_workers():
    found = profile(pipe(from_examples(images(30)), shuffle(seed=0), batch(4), collate(vision(size=(64, 64))), TWO))
    line = next(part for part in found.parts if "collate(" in part.part)
    assert line.count == 8
    assert line.seconds > 0
    assert found.count == 8


def test_tensors_of_a_table_are_stacked_as_before():
    pixels = from_table({"image": np.zeros((9, 2, 2, 3), np.uint8)})
    shared = pipe(pixels, shuffle(seed=0), batch(4), collate(vision()), TWO)
    assert "2 threads share nothing" in explain(shared)
    assert_runners_agree(pipe(pixels, shuffle(seed=0), batch(4), collate(vision())), TWO)
