"""The law of parts: ids of sentences that nobody wrote are the tokenizer's own ids of the sentences."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from attrs import evolve
from hypothesis import example, given
from hypothesis import strategies as st

from mlxfp.core.datasets import unoptimized
from mlxfp.core.errors import DataError
from mlxfp.core.pipelines import pipe
from mlxfp.data.lengths.batching import batch
from mlxfp.data.rows.columns import drop_columns, rename_columns, select_columns
from mlxfp.data.rows.map_filter import map
from mlxfp.data.rows.shuffling import shuffle
from mlxfp.data.sources.in_memory import from_table
from mlxfp.testing.laws import assert_plans_agree
from mlxfp.text.encoding import template_encoding as parts
from mlxfp.text.encoding.boundaries import PATTERNS
from mlxfp.text.encoding.boundary_rules import Rule, find_rule
from mlxfp.text.encoding.encoding import find_memo, forget_words
from mlxfp.text.encoding.template_encoding import Layout, Limits, encode_sentences, find_layout
from mlxfp.text.templates.random_templates import Field
from mlxfp.text.templates.templates import Policy, Template, template
from mlxfp.text.tokenizers.files import load_tokenizer
from mlxfp.text.tokenizers.tokenizer import Tokenizer
from mlxfp.text.tokenizing import tokenize
from tests.text.column_kinds import KINDS
from tests.text.configurations import HURTFUL, known, listed, splitter, tokenizers, with_parts
from tests.text.corpora import trained

KNOWN = known()
LITERALS = st.sampled_from(
    [" ", " and ", ", ", ". ", "", " in the year ", "-", ": ", "  ", " [MASK] ", "'s ", "\n", "é ", " old", "{{", " ½ "]
)


ALWAYS = Limits(rows=0, distinct=math.inf, whole=1.0, new=1e9)


pytestmark = pytest.mark.usefixtures("nothing_remembered")


def by_parts(tokenizer: Tokenizer, sentence: Template, chunk: pa.RecordBatch) -> list[list[int]] | None:
    """Encode without writing."""
    found = encode_sentences(tokenizer, sentence, chunk, ALWAYS)
    if found is None:
        return None
    return [found.values[start : start + count].tolist() for start, count in zip(found.starts, found.lengths, strict=True)]


def written(tokenizer: Tokenizer, sentence: Template, chunk: pa.RecordBatch) -> list[list[int]]:
    """Write each row, and let the tokenizer encode it."""
    return [tokenizer.encode(text, special=False) for text in sentence.render(chunk).to_pylist()]


def assert_encodes_alike(tokenizer: Tokenizer, sentence: Template, chunk: pa.RecordBatch) -> None:
    """Law: ids by parts are the ids of what is written."""
    found = by_parts(tokenizer, sentence, chunk)
    assert found is not None
    assert found == written(tokenizer, sentence, chunk)


@st.composite
def patterns(draw: st.DrawFn) -> str:
    """Draw patterns of up to five fields with any text between them."""
    fields = draw(st.lists(st.sampled_from(["{a}", "{b}", "{c}", "{c:.2f}", "{b:>4}", "{a!r}"]), min_size=1, max_size=5))
    literal = LITERALS | st.lists(LITERALS, max_size=4).map("".join) | HURTFUL.map(lambda text: text.replace("{", "{{").replace("}", "}}"))
    return draw(literal) + "".join(field + draw(literal) for field in fields)


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "a": st.none() | st.sampled_from(["", " ", "male", "New York", " a", "a ", "[CLS]", "x [MASK]"]) | HURTFUL,
            "b": st.none() | st.integers(-3, 80),
            "c": st.none() | st.sampled_from([0.5, -0.0, 0.0, math.nan, math.inf, 7.25]) | st.floats(),
        }
    ),
    max_size=8,
)
SCHEMA = pa.schema({"a": pa.string(), "b": pa.int64(), "c": pa.float64()})


@pytest.mark.parametrize("name", [name for name, tokenizer in KNOWN.items() if find_rule(tokenizer.json) is not None])
@given(pattern=patterns(), rows=ROWS)
@example(pattern="Aged {b} and named {a}, in {a}.", rows=[{"a": " x ", "b": 1, "c": 0.5}, {"a": None, "b": None, "c": math.nan}])
@example(pattern="{a} a {b}", rows=[{"a": "", "b": 1, "c": 1.0}, {"a": " ", "b": 2, "c": 1.0}])
def test_ids_by_parts_are_those_of_the_sentences(name: str, pattern: str, rows: list[dict[str, Any]]):
    assert_encodes_alike(KNOWN[name], Template(pattern), pa.RecordBatch.from_pylist(rows, schema=SCHEMA))


@given(tokenizer=tokenizers(), pattern=patterns(), rows=ROWS, policy=st.sampled_from(["say", "drop", "raise"]))
def test_whatever_the_tokenizer_and_the_policy(tokenizer: Tokenizer, pattern: str, rows: list[dict[str, Any]], policy: Policy):
    sentence, chunk = Template(pattern, policy=policy), pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    try:
        expected = written(tokenizer, sentence, chunk)
    except BaseException:  # noqa: BLE001  # missing values, and tokenizers at which the package panics, which is no Exception
        return
    assert by_parts(tokenizer, sentence, chunk) in (expected, None)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_columns_of_every_type(kind: str, data: st.DataObject):
    arrow, values, formats = KINDS[kind]
    column = pa.array(data.draw(st.lists(st.none() | values, max_size=5)), arrow)
    pattern = f"It is {{x{data.draw(st.sampled_from(formats))}}} and {{x}} or {{x}}{{x}}."
    assert_encodes_alike(KNOWN["bert"], Template(pattern), pa.record_batch({"x": column}))


def test_a_pattern_is_cut_between_fields_only():
    rule = find_rule(trained("wordpiece").json)
    assert rule is not None
    layout = find_layout("The old {a} of the sea, {b}{c} and {d} so on.", rule)
    a, b, c, d = (Field(name) for name in "abcd")
    assert layout.parts == (("The old ", a, " of"), (" ", b, c, " and"), (" ", d, " so on."))
    assert layout.between == (" the sea,", "")


def test_each_text_of_a_part_is_encoded_once_and_text_between_goes_where_there_are_fewer():
    chunk = pa.record_batch({"few": ["a", "b"] * 50, "many": range(100)})
    rule = find_rule(KNOWN["bert"].json)
    assert rule is not None
    for pattern, long in (("{few} of them, {many}", 0), ("{many} of them, {few}", 1)):
        found = parts.find_texts(Template(pattern), find_layout(pattern, rule), chunk, distinct=1.0)
        assert found is not None
        texts, places = found
        assert (len(texts), places.shape) == (102, (100, 2))
        assert ["them" in texts[place].as_py() for place in places[0].tolist()] == [long == 0, long == 1]


KNOWN_OR_SPLIT = KNOWN | {"split": with_parts(listed(), pre_tokenizer=splitter("Split", pattern={"Regex": next(iter(PATTERNS))}))}


def _no_flags(rule: Rule) -> Rule:
    return evolve(rule, held="", hinted="", cuts=evolve(rule.cuts, strict=False, single=False))


@pytest.mark.parametrize(
    ("name", "value", "pattern", "broken"),
    [
        pytest.param("bert", "[CLS]", "{a} and {b}", _no_flags, id="an added token"),
        pytest.param("split", "a\u3000 ", "{a} and {b}", _no_flags, id="white space at the end of a word"),
        pytest.param("llama2", " x", "{a} and {b}", lambda rule: evolve(rule, cuts=evolve(rule.cuts, lead=False)), id="a space in front"),
        pytest.param(
            "bert",
            "sea",
            "{a}side of {b}",
            lambda rule: evolve(rule, cuts=evolve(rule.cuts, pairs=(*rule.cuts.pairs, (b"s", b"i")))),
            id="a cut inside a word",
        ),
    ],
)
def test_the_law_catches_parts_that_are_no_words(name: str, value: str, pattern: str, broken: Callable[[Rule], Rule]):
    chunk, tokenizer = pa.record_batch({"a": [value, "b"], "b": [1, 2]}), KNOWN_OR_SPLIT[name]
    assert_encodes_alike(tokenizer, Template(pattern), chunk)
    forget_words()
    memo = find_memo(tokenizer)
    assert memo is not None
    memo.rule = broken(memo.rule)
    with pytest.raises(AssertionError):
        assert_encodes_alike(tokenizer, Template(pattern), chunk)


def test_the_law_catches_a_cut_between_a_value_and_the_text_beside_it():
    chunk = pa.record_batch({"a": ["sea", "s"], "b": [1, 2]})
    broken = Layout(((Field("a"),), ("side ", Field("b"))), ("",))
    with patch.object(parts, "find_layout", lambda *_: broken), pytest.raises(AssertionError):
        assert_encodes_alike(KNOWN["bert"], Template("{a}side {b}"), chunk)


@pytest.mark.parametrize("name", ["bert-base-uncased", "gpt2"])
def test_real_tokenizers_over_a_real_table(data_folder: Path, name: str):
    tokenizer = load_tokenizer(data_folder / "tokenizers" / name)
    lines = (data_folder / "wikitext2/valid.txt").read_text("utf-8").split("\n")[:400]
    rng = np.random.default_rng(0)
    chunk = pa.record_batch(
        {"a": [lines[place] for place in rng.integers(0, 400, 600)], "b": rng.integers(0, 9, 600), "c": rng.random(600)}
    )
    assert_encodes_alike(tokenizer, Template("In {b} of them {c:.2f}: {a}! That is {a}, (so {b})."), chunk)


# As one stage


def sentences(rows: int = 7) -> Any:
    values = ["male", None, "a b", " c", "male", "[CLS]", "d"]
    return from_table({"a": [values[place % 7] for place in range(rows)], "b": [place % 3 for place in range(rows)], "y": [0] * rows})


TOKENIZER = KNOWN["bert"]
MANY = 1100  # rows: so many that the two stages do not write the sentences


def test_chunks_of_many_rows_with_few_values_are_not_written():
    sentence = Template("It is {a}, {b} years old.")
    few, many = (pa.RecordBatch.from_pylist(sentences(rows)[:]) for rows in (7, MANY))
    assert encode_sentences(TOKENIZER, sentence, many) is not None
    assert encode_sentences(TOKENIZER, sentence, few) is None
    assert encode_sentences(TOKENIZER, sentence, many.set_column(1, "b", pa.array(range(MANY)))) is None
    assert encode_sentences(TOKENIZER, Template("It is {a}.", policy="drop"), many) is None


@pytest.mark.parametrize("policy", ["say", "drop"])
@pytest.mark.parametrize("options", [{}, {"special": False}, {"max_length": 6}, {"max_length": 6, "truncation": "left"}], ids=str)
def test_the_two_stages_run_as_one_where_nobody_wants_the_sentences(policy: Policy, options: dict[str, Any]):
    write, to_ids = template("It is {a}, {b} years old.", policy=policy), tokenize(TOKENIZER, **options)
    for dataset in (
        pipe(sentences(), write, to_ids, select_columns(["input_ids", "y"])),
        pipe(sentences(MANY), write, to_ids, select_columns(["input_ids", "y"]), batch(400)),
        pipe(sentences(), write, rename_columns({"text": "t"}), rename_columns({"t": "text"}), to_ids, drop_columns(["text", "a"])),
        pipe(sentences(MANY), shuffle(seed=0), write, to_ids, select_columns(["input_ids"]), batch(400), map(dict)),
        pipe(sentences(MANY), write, to_ids, shuffle(seed=0), batch(400), select_columns(["input_ids", "b"])),
    ):
        assert_plans_agree(dataset)


def merged(dataset: Any) -> bool:
    """Whether a template and a tokenize of a dataset run as one."""
    while "tokenize" not in str(dataset.stages):
        dataset = dataset.plan.source.dataset
    found = [part for step in dataset.plan.steps for part in getattr(step.stage, "stages", (step.stage,))]
    return "_TokenizeTemplate" in str([type(part) for part in found])


def test_when_the_two_stages_run_as_one():
    write, to_ids, ids = template("It is {a}."), tokenize(TOKENIZER), select_columns(["input_ids"])
    assert merged(pipe(sentences(), write, to_ids, ids))
    assert merged(pipe(sentences(), write, map(dict), write, to_ids, ids))
    assert not merged(pipe(sentences(), write, to_ids))
    assert not merged(pipe(sentences(), write, to_ids, map(dict), ids))
    assert not merged(pipe(sentences(), write, map(dict), to_ids, ids))
    assert not merged(pipe(sentences(), template("{a}, {b}.", seed=1), to_ids, ids))
    assert not merged(pipe(sentences(), write, tokenize(TOKENIZER, pair="a"), ids))
    assert not merged(pipe(sentences(), write, tokenize(TOKENIZER, column="a"), ids))
    assert not merged(pipe(sentences(), write, tokenize(TOKENIZER, max_length=4, stride=1), ids))
    assert not merged(pipe(sentences(), write, tokenize(TOKENIZER, into="text"), select_columns(["text"])))


@pytest.mark.parametrize(
    ("write", "to_ids", "said"),
    [
        (template("{a}.", policy="raise"), tokenize(TOKENIZER), "missing in source row 1"),
        (template("{b:c}"), tokenize(TOKENIZER), "does not fit the value \\[ 1114112 \\] of source row 2"),
        (template("{a} of them"), tokenize(TOKENIZER, max_length=7, truncation="error"), "tokenize gave . ids for source row 2"),
    ],
)
def test_errors_are_those_of_the_stages_one_by_one(write: Any, to_ids: Any, said: str):
    missing = None if "raise" in repr(write) else "old"
    rows = from_table({"a": ["old", missing, "old year", *["old"] * MANY], "b": [97, 98, 0x110000, *[97] * MANY]})
    dataset = pipe(rows, write, to_ids, select_columns(["input_ids"]))
    assert merged(dataset)
    errors = []
    for run in (unoptimized(dataset), dataset):
        with pytest.raises(DataError, match=said) as caught:
            list(run)
        errors.append((str(caught.value), caught.value.__notes__))
    assert errors[0] == errors[1]
