"""What every collator keeps to. A new collator joins with one line in the table."""

import pickle
from collections.abc import Sequence
from importlib.util import find_spec
from io import BytesIO
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from attrs import field, frozen
from hypothesis import given, settings
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.support.errors import DataError, SchemaError
from mlxfp.testing import laws
from mlxfp.testing.comparing import assert_same
from tests.collators.groups import IDS, groups, view_of

VOCABULARY = {"pad_id": 0, "mask_id": 1, "special_ids": {0, 1, 2, 3}, "vocab_size": IDS, "seed": 0, "rate": 0.5}
MEL = fp.audio.LogMel(100, size=16, hop=4, mels=3)


@frozen
class Case:
    """A collator, the columns that it takes, and for each mask of its batch the column of which it marks the values."""

    collator: fp.collators.Collator
    columns: str
    masks: dict[str, str] = field(factory=dict)

    @property
    def names(self) -> list[str]:
        return self.columns.split()


TOKENS = {"attention_mask": "input_ids"}
BATTERY = {
    "text": Case(fp.collators.text(pad_id=0), "input_ids", TOKENS),
    "text with everything": Case(
        fp.collators.text(
            pad_id=7, label="y", classes=5, vocab_size=IDS, type_ids=True, pad_multiple=4, carry=["name", "score", "flag", "image"]
        ),
        "input_ids token_type_ids y name score flag image",
        TOKENS,
    ),
    "text on the left": Case(
        fp.collators.text(pad_id=0, side="left", length=12, label="score", label_kind="value"), "input_ids score", TOKENS
    ),
    "text of planned lengths": Case(fp.collators.text(pad_id=0, lengths=[2, 5, 11]), "input_ids", TOKENS),
    "text of another column": Case(
        fp.collators.text(pad_id=0, column="labels", prefix="answer_", label="y", lengths=[3, 11]),
        "labels y",
        {"answer_attention_mask": "labels"},
    ),
    "two texts": Case(
        fp.collators.multimodal(
            [fp.collators.text(pad_id=0, label="y"), fp.collators.text(pad_id=7, column="labels", prefix="answer_", pad_multiple=4)]
        ),
        "input_ids labels y",
        {**TOKENS, "answer_attention_mask": "labels"},
    ),
    "causal": Case(fp.collators.causal(pad_id=0, prompt_mask="prompt", carry=["y"]), "input_ids prompt y"),
    "masked": Case(fp.collators.masked(**VOCABULARY), "input_ids", TOKENS),
    "masked with types": Case(fp.collators.masked(**VOCABULARY, type_ids=True), "input_ids token_type_ids", TOKENS),
    "masked on the left": Case(fp.collators.masked(**VOCABULARY, side="left", pad_multiple=4, carry=["name"]), "input_ids name", TOKENS),
    "seq2seq": Case(
        fp.collators.seq2seq(pad_id=0, start_id=1, vocab_size=IDS, carry=["y"]),
        "input_ids labels y",
        {**TOKENS, "decoder_attention_mask": "labels"},
    ),
    "seq2seq of fixed lengths": Case(
        fp.collators.seq2seq(pad_id=0, start_id=1, target="input_ids", length=9, target_length=10), "input_ids", TOKENS
    ),
    "tokens of words": Case(
        fp.collators.tokens(pad_id=0, words="tags", scheme="first", classes=5, carry=["y"]), "input_ids word_ids tags y", TOKENS
    ),
    "tokens of tagged words": Case(
        fp.collators.tokens(pad_id=7, words="tags", scheme="bio", side="left", lengths=[4, 11]), "input_ids word_ids tags", TOKENS
    ),
    "tokens of spans": Case(
        fp.collators.tokens(pad_id=0, spans="spans", scheme="bio", type_ids=True, pad_multiple=4),
        "input_ids token_type_ids token_starts token_ends spans",
        TOKENS,
    ),
    "tokens inside of spans": Case(
        fp.collators.tokens(pad_id=0, spans="spans", scheme="all", classes=3), "input_ids token_starts token_ends spans", TOKENS
    ),
    "preference": Case(
        fp.collators.preference(pad_id=0, prompt="input_ids", chosen="labels", rejected="answer", carry=["score"]),
        "input_ids labels answer score",
    ),
    "preference of planned lengths": Case(
        fp.collators.preference(pad_id=7, prompt="input_ids", chosen="labels", rejected="answer", lengths=[3, 19], vocab_size=IDS),
        "input_ids labels answer",
    ),
    "vision": Case(fp.collators.vision(label="y", classes=5), "image y"),
    "vision, normalized": Case(
        fp.collators.vision(normalization=fp.collators.Normalization([0.1, 0.2, 0.3], [1, 2, 3]), carry=["name"]), "image name"
    ),
    "vision in grey": Case(
        fp.collators.vision(mode="grey", normalization=fp.collators.Normalization([0.5], [0.5]), label="score", label_kind="value"),
        "image score",
    ),
    "vision in colour": Case(fp.collators.vision(image="grey", mode="rgb"), "grey"),
    "audio": Case(fp.collators.audio(label="y", carry=["flag"]), "waveform y flag", {"mask": "waveform"}),
    "audio of 16 bits": Case(fp.collators.audio(waveform="samples", pad_multiple=4), "samples", {"mask": "samples"}),
    "audio of tensors": Case(fp.collators.audio(waveform="tone", lengths=[10, 64]), "tone", {"mask": "tone"}),
    "audio spectrograms": Case(fp.collators.audio(spectrogram=MEL, label="y"), "waveform y"),
    "audio features": Case(fp.collators.audio(features="frames", label="y", pad_multiple=4), "frames y", {"mask": "frames"}),
    "audio spectrograms of fixed length": Case(fp.collators.audio(waveform="tone", spectrogram=MEL, length=20), "tone"),
    "default": Case(fp.collators.default(), "input_ids y score name flag", {"input_ids_mask": "input_ids"}),
    "default on floats": Case(
        fp.collators.default(pad_id=9, pad_multiple=3), "values pair", {"values_mask": "values", "pair_mask": "pair"}
    ),
    "default on tensors": Case(fp.collators.default(), "image grey vector small"),
    "multimodal": Case(
        fp.collators.multimodal([fp.collators.text(pad_id=0, label="y"), fp.collators.vision(), fp.collators.audio()]),
        "input_ids y image waveform",
        {**TOKENS, "mask": "waveform"},
    ),
}
every_collator = pytest.mark.parametrize("case", BATTERY.values(), ids=BATTERY)


def assert_keeps_to_the_laws_of_its_examples(case: Case, examples: Sequence[Any], order: Sequence[int]) -> None:
    laws.assert_pure_collator(case.collator, examples)
    laws.assert_permutes(case.collator, examples, order)
    for mask, column in case.masks.items():
        laws.assert_mask_counts(case.collator, examples, tokens=column, mask=mask)


@every_collator
@given(st.data())
def test_a_collator_keeps_to_the_laws(case: Case, data: st.DataObject):
    collator, rows = case.collator, data.draw(groups(case.names))
    view = view_of(rows, epoch=data.draw(st.integers(0, 9)), first=data.draw(st.integers(0, 99)))
    order = data.draw(st.permutations(range(len(rows))))
    part = fp.Examples(view.chunk.slice(len(rows) // 2))
    for examples in (rows, view):
        assert_keeps_to_the_laws_of_its_examples(case, examples, order)
    laws.assert_list_and_view_agree(collator, rows)
    assert_same(collator(view), collator(list(view)), "a typed view gives what the list of its rows gives")
    assert_same(collator(part), collator(list(part)), "a slice of a view gives what the list of its rows gives")
    laws.assert_an_example_stands_alone(collator, view)  # a view: an empty list says no type, unless its column does


@every_collator
@given(st.data())
def test_a_batch_holds_text_and_numbers_of_32_bits_or_fewer(case: Case, data: st.DataObject):
    rows = data.draw(groups(case.names))
    for values in case.collator(view_of(rows)).values():
        assert len(values) == len(rows)
        if isinstance(values, tuple):
            assert all(isinstance(value, str) for value in values)
        else:
            assert isinstance(values, mx.array)
            assert values.size > 0
            assert values.dtype not in (mx.int64, mx.uint64)


@every_collator
@given(st.data())
def test_arrays_of_a_batch_do_not_depend_on_the_values(case: Case, data: st.DataObject):
    kinds = [
        {name: None if isinstance(values, tuple) else (values.dtype, values.ndim) for name, values in case.collator(view_of(rows)).items()}
        for rows in data.draw(st.tuples(groups(case.names), groups(case.names)))
    ]
    assert kinds[0] == kinds[1]


@every_collator
@given(st.data())
@settings(max_examples=1)
def test_an_empty_group_is_an_error(case: Case, data: st.DataObject):
    view = view_of(data.draw(groups(case.names)))
    for group in ([], fp.Examples(view.chunk.slice(len(view)))):
        with pytest.raises(DataError, match="got an empty group"):
            case.collator(group)


@pytest.mark.parametrize("name", [name for name in BATTERY if not name.startswith("default")])  # which needs no column
def test_a_missing_column_is_an_error_that_names_it(name: str):
    with pytest.raises(
        SchemaError, match=r"collators\.\w+ needs the column '(input_ids|labels|image|grey|waveform|samples|tone|frames)'.*'other'"
    ):
        BATTERY[name].collator([{"other": 1}])


@every_collator
@given(st.data())
def test_rows_without_values_are_collated(case: Case, data: st.DataObject):
    batch = case.collator(data.draw(groups(case.names, longest=0)))
    for mask, column in case.masks.items():
        if column in ("input_ids", "waveform", "samples", "values"):
            assert not np.asarray(batch[mask]).any()


@every_collator
def test_a_collator_is_a_value(case: Case):
    copy = pickle.loads(pickle.dumps(case.collator))
    assert copy == case.collator
    assert hash(copy) == hash(case.collator)
    assert fp.inspect.fingerprint(copy) == fp.inspect.fingerprint(case.collator)
    name = type(case.collator).__name__.lstrip("_").lower()
    assert repr(case.collator).startswith(f"{name}(")


def test_collators_that_differ_are_different_values():
    collators = [case.collator for case in BATTERY.values()]
    assert (
        len({fp.inspect.fingerprint(collator) for collator in collators}) == len(set(collators)) == len(collators) - 1
    )  # default() is there twice


@pytest.mark.skipif(find_spec("PIL") is None, reason="decoding images needs Pillow: pip install 'mlxfp[vision]'")
@given(st.data())
def test_encoded_images_keep_to_the_same_laws(data: st.DataObject):
    from PIL import Image

    def encoded(row: dict[str, Any]) -> dict[str, Any]:
        buffer = BytesIO()
        Image.fromarray(row["image"]).save(buffer, "PNG")
        return {"image": buffer.getvalue()}

    rows = data.draw(groups(["image"]))
    files = [encoded(row) for row in rows]
    for collator in (
        fp.collators.vision(),
        fp.collators.vision(mode="grey"),
        fp.collators.vision(size=(3, 7), normalization=fp.collators.Normalization([0.1] * 3, [0.5] * 3)),
    ):
        laws.assert_pure_collator(collator, files)
        laws.assert_list_and_view_agree(collator, files)
        laws.assert_an_example_stands_alone(collator, files)
        assert_same(collator(files), collator(rows), "an encoded image gives what its pixels give")
