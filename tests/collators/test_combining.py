"""Several collators as one."""

import mlx.core as mx
import numpy as np
import pytest

import mlxfp as fp
from mlxfp.support.errors import ArgumentError, ArgumentTypeError
from tests.collators.groups import view_of

ROWS = [{"input_ids": [5, 6], "y": 1, "image": np.zeros((4, 5, 3), np.uint8), "waveform": [0.5, 0.25, 0.0]}]


def test_the_batch_is_what_each_collator_gives():
    parts = [fp.collators.text(pad_id=0, label="y"), fp.collators.vision(), fp.collators.audio()]
    view = view_of(ROWS)
    expected = {name: values.tolist() for part in parts for name, values in part(view).items()}
    found = {name: values.tolist() for name, values in fp.collators.multimodal(parts)(view).items()}
    assert found == expected
    assert list(found) == ["input_ids", "attention_mask", "labels", "images", "waveforms", "lengths", "mask"]


def test_a_list_is_turned_into_a_view_once():
    seen = []

    def spy(examples):
        seen.append(examples)
        return {f"x{len(seen)}": mx.zeros(len(examples))}

    fp.collators.multimodal([spy, spy])(ROWS)
    assert isinstance(seen[0], fp.Examples)
    assert seen[0] is seen[1]


def test_two_arrays_of_one_name_are_an_error_that_names_the_collators():
    with pytest.raises(ArgumentError) as error:
        fp.collators.multimodal([fp.collators.text(pad_id=0, label="y"), fp.collators.vision(label="y")])(ROWS)
    assert str(error.value) == (
        "Two collators of multimodal create 'labels': text(pad_id=0, label='y') and vision(label='y'). "
        "Remove 'labels' from one collator, or rename 'labels' in a wrapper function."
    )


def test_arguments_that_cannot_be_are_refused_at_once():
    with pytest.raises(ArgumentError, match="multimodal combines at least two collators, got 1"):
        fp.collators.multimodal([fp.collators.vision()])
    with pytest.raises(ArgumentTypeError, match=r"collators must be a list of collators, got _Vision\. Write multimodal\(\[\.\.\.\]\)"):
        fp.collators.multimodal(fp.collators.vision())
    with pytest.raises(ArgumentTypeError, match="collator 1 of multimodal must be a function"):
        fp.collators.multimodal([fp.collators.vision(), "text"])
