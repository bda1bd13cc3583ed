"""Collate functions of other libraries, as they are: the laws raise no false alarm, and say what does break them."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st

from mlxfp.testing import laws

pytestmark = pytest.mark.filterwarnings("ignore")  # those of other libraries about themselves

IDS = st.lists(st.integers(3, 59), min_size=1, max_size=5)
LABELLED = st.lists(st.fixed_dictionaries({"input_ids": IDS, "label": st.integers(0, 3)}), min_size=1, max_size=4)
TOKENS = st.lists(st.fixed_dictionaries({"input_ids": IDS}), min_size=1, max_size=4)
PAIRS = st.lists(st.fixed_dictionaries({"input_ids": IDS, "labels": IDS}), min_size=1, max_size=4)
NUMBERS = st.lists(
    st.fixed_dictionaries({"x": st.integers(0, 9), "y": st.floats(-9, 9), "z": st.just(np.ones(2, np.float32))}), min_size=1, max_size=4
)
STATED: dict[str, Any] = {
    "masks": {"attention_mask": "input_ids"},
    "padding": {"input_ids": 0},
    "dtypes": {"input_ids": "int64"},
    "carries": {"input_ids": "input_ids"},
}


@pytest.fixture(autouse=True)
def _few_cases():
    before = settings.get_current_profile_name()
    settings.register_profile("some", settings.get_profile(before), max_examples=20)
    settings.load_profile("some")
    yield
    settings.load_profile(before)


def made_by_transformers(name: str, *, padding_side: str = "right", **options: Any) -> Any:
    import transformers
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    words = {"[PAD]": 0, "[UNK]": 1, "[MASK]": 2, **{f"w{number}": number for number in range(3, 60)}}
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(words, unk_token="[UNK]")),
        pad_token="[PAD]",
        unk_token="[UNK]",
        mask_token="[MASK]",
        padding_side=padding_side,
    )
    return getattr(transformers, name)(tokenizer, **options)


UNSHIFTED = {"labels": {"labels": ("input_ids", 0, -100)}}
TRANSFORMERS: list[tuple[str, dict[str, Any], Any, dict[str, Any]]] = [
    ("DataCollatorWithPadding", {}, LABELLED, {**STATED, "carries": {"labels": "label"}}),
    ("DataCollatorWithPadding", {"return_tensors": "np"}, LABELLED, STATED),
    ("DataCollatorWithPadding", {"pad_to_multiple_of": 4}, LABELLED, STATED),
    ("DataCollatorWithPadding", {"padding_side": "left"}, TOKENS, STATED),
    ("DataCollatorForLanguageModeling", {"mlm": False}, TOKENS, STATED | UNSHIFTED),
    ("DataCollatorForLanguageModeling", {"mlm": False, "return_tensors": "np"}, TOKENS, STATED | UNSHIFTED),
    ("DataCollatorForSeq2Seq", {}, PAIRS, {**STATED, "padding": {"input_ids": 0, "labels": -100}, "carries": {"labels": "labels"}}),
    ("DataCollatorForSeq2Seq", {"return_tensors": "np"}, PAIRS, {**STATED, "padding": {"labels": -100}}),
]


@pytest.mark.parametrize(
    ("name", "options", "groups", "stated"), TRANSFORMERS, ids=[f"{name}-{options}" for name, options, _, _ in TRANSFORMERS]
)
def test_collators_of_transformers_break_no_law(name: str, options: dict[str, Any], groups: Any, stated: dict[str, Any]):
    pytest.importorskip("transformers")
    pytest.importorskip("torch")
    laws.check(made_by_transformers(name, **options), examples=groups, **stated)


@pytest.mark.parametrize(
    ("options", "stated", "message"),
    [
        # A single token may get the same mask twice, and another one the third time: then the law of order is the first to be broken.
        ({"mlm": True, "seed": 0}, {}, "gives the same batch for the same examples|state kept from earlier calls"),
        ({"mlm": False}, {"labels": {"labels": ("input_ids", 1, -100)}}, "the token 1 positions later"),
    ],
)
def test_masks_that_depend_on_earlier_calls_and_labels_that_are_not_shifted_are_found(options: Any, stated: Any, message: str):
    pytest.importorskip("transformers")
    pytest.importorskip("torch")
    with pytest.raises(AssertionError, match=message):
        laws.check(made_by_transformers("DataCollatorForLanguageModeling", **options), examples=TOKENS, **stated)


def padded_by_torch(rows: Any) -> Any:
    import torch

    return torch.nn.utils.rnn.pad_sequence([torch.tensor(row["input_ids"]) for row in rows], batch_first=True)


def collated_by_torch(rows: Any) -> Any:
    from torch.utils.data import default_collate

    return default_collate(rows)


def collated_in_tuples(rows: Any) -> Any:
    from torch.utils.data import default_collate

    return default_collate([(row["x"], row["y"]) for row in rows])


def batched_by_grain(rows: Any) -> Any:
    import grain

    return grain.MapDataset.source(rows).batch(len(rows))[0]


def padded_by_mlx_data(rows: Any) -> Any:
    import mlx.data

    buffer = mlx.data.buffer_from_vector([{"input_ids": np.array(row["input_ids"])} for row in rows])
    return buffer.batch(len(rows), pad={"input_ids": 0})[0]


TWO = st.lists(st.integers(0, 9), min_size=2, max_size=2)
OTHERS: list[tuple[str, Callable[[Any], Any], Any, dict[str, Any]]] = [
    ("torch", padded_by_torch, TOKENS, {"padding": {"0": 0}, "carries": {"0": "input_ids"}, "dtypes": {"0": "int64"}}),
    ("torch", collated_by_torch, NUMBERS, {"carries": {"x": "x", "z": "z"}, "dtypes": {"y": "float64"}}),
    ("torch", collated_by_torch, st.lists(st.fixed_dictionaries({"x": TWO, "text": st.text()}), min_size=1, max_size=4), {}),
    ("torch", collated_in_tuples, NUMBERS, {"carries": {"0": "x", "1": "y"}}),
    ("grain", batched_by_grain, NUMBERS, {"carries": {"x": "x"}}),
    ("mlx.data", padded_by_mlx_data, TOKENS, {"padding": {"input_ids": 0}, "carries": {"input_ids": "input_ids"}}),
]


@pytest.mark.parametrize(("package", "collator", "groups", "stated"), OTHERS, ids=[collator.__name__ for _, collator, _, _ in OTHERS])
def test_collate_functions_of_other_libraries_break_no_law(package: str, collator: Any, groups: Any, stated: dict[str, Any]):
    if find_spec(package) is None:
        pytest.skip(f"needs {package}: pip install 'mlxfp[bench]'")
    laws.check(collator, examples=groups, **stated)


def test_a_model_of_torch_is_held_to_the_laws_of_models():
    torch = pytest.importorskip("torch")
    embedding = torch.nn.Embedding(20, 3)
    ids, mask = torch.tensor([[3, 4, 5], [6, 7, 0]]), torch.tensor([[1, 1, 1], [1, 1, 0]])

    def pooled(ids: Any, mask: Any) -> Any:
        return (embedding(ids) * mask[..., None]).sum(dim=1)

    laws.assert_ignores_padding(pooled, ids, mask, filler=9)
    laws.assert_rows_stand_alone(pooled, ids, mask)
    laws.assert_causal(lambda ids: embedding(ids).cumsum(dim=1), ids, 1, changed=ids + 1)
    with pytest.raises(AssertionError, match="padding changes no output"):
        laws.assert_ignores_padding(lambda ids, mask: embedding(ids).mean(dim=1), ids, mask)
