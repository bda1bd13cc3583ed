"""The law of templates: writing a chunk is writing each of its rows."""

import decimal
import pickle
from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from itertools import combinations, permutations
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.core.chunks import number_rows, to_rows
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, DataError, SchemaError, UnknownNameError
from mlxfp.testing import laws
from mlxfp.testing.strategies import rechunkings, tables
from mlxfp.text.templates.formatting import is_missing
from mlxfp.text.templates.random_templates import Field, parse
from mlxfp.text.templates.templates import Policy, Template, template
from tests.text.column_kinds import KINDS, SHORT_TEXT

_LITERALS = st.sampled_from(
    ["", " ", ". ", ", ", "; ", " | ", "! ", "?! ", "...\n", "\n", " - ", ".", "{{", "}}, ", " is ", "é,\t", "3.5 m"]
)


def assert_renders_each_row(render: Callable[[pa.RecordBatch], Any], sentence: Template, chunk: pa.RecordBatch) -> None:
    """Law: rendering a chunk equals rendering each row."""
    expected = [sentence.render_row(row) for row in to_rows(chunk)]
    found = render(chunk)
    assert found.type == pa.string()
    assert found.to_pylist() == expected


@st.composite
def chunks(draw: st.DrawFn) -> pa.RecordBatch:
    """Chunks with every kind of column, sliced somewhere."""
    kinds = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=4, unique=True))
    size = draw(st.integers(0, 6))
    columns = {}
    for kind in kinds:
        values = draw(st.lists(KINDS[kind][1] | st.none(), min_size=size, max_size=size))
        columns[kind] = _array(values, KINDS[kind][0])
    chunk = pa.record_batch(columns)
    return chunk.slice(draw(st.integers(0, size)))


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode().cast(kind)
    if pa.types.is_run_end_encoded(kind):
        return pa.compute.run_end_encode(pa.array(values, kind.value_type))
    return pa.array(values, kind)


@st.composite
def cases(draw: st.DrawFn, policies: tuple[Policy, ...] = ("say", "drop")) -> tuple[Template, pa.RecordBatch]:
    """A chunk and a template over its columns."""
    chunk = draw(chunks())
    pieces = [draw(_LITERALS)]
    for kind in draw(st.lists(st.sampled_from(chunk.schema.names), max_size=5)):
        pieces += [f"{{{kind}{draw(st.sampled_from(KINDS[kind][2]))}}}", draw(_LITERALS)]
    return Template("".join(pieces), missing=draw(SHORT_TEXT), policy=draw(st.sampled_from(policies))), chunk


@given(cases())
def test_rendering_a_chunk_is_rendering_each_row(case: tuple[Template, pa.RecordBatch]):
    sentence, chunk = case
    sentence.check(chunk.schema)
    assert_renders_each_row(sentence.render, sentence, chunk)


def by_hand(sentence: Template, row: dict[str, Any], order: list[int]) -> str:
    """Write a row with the phrases that have fields in another order, as a pattern with these phrases there would be written."""
    phrases = list(parse(sentence.pattern))
    movable = [place for place, phrase in enumerate(phrases) if phrase.fields]
    moved = dict(zip(movable, (phrases[movable[at]].pieces for at in order), strict=True))
    texts = [
        None
        if sentence.policy == "drop" and any(is_missing(row[piece.name]) for piece in pieces if isinstance(piece, Field))
        else "".join(
            piece if isinstance(piece, str) else sentence.missing if is_missing(row[piece.name]) else piece.write(row[piece.name])
            for piece in pieces
        )
        for pieces in (moved.get(place, phrase.pieces) for place, phrase in enumerate(phrases))
    ]
    kept = [(text, phrase.end) for text, phrase in zip(texts, phrases, strict=True) if text is not None]
    return "".join(text + end for text, end in kept[:-1]) + kept[-1][0] + phrases[-1].end if kept else ""


@st.composite
def several_phrases(draw: st.DrawFn) -> tuple[Template, pa.RecordBatch]:
    """A chunk and a template over its columns that has two to four phrases with fields."""
    chunk = draw(chunks())
    pattern = draw(st.sampled_from(["", "is ", "all, "]))
    for kind in draw(st.lists(st.sampled_from(chunk.schema.names), min_size=2, max_size=4)):
        pattern += f"{{{kind}{draw(st.sampled_from(KINDS[kind][2]))}}}{draw(st.sampled_from([', ', '. so ', '; ', ' | well. ', '! {{']))}"
    return Template(pattern, missing=draw(SHORT_TEXT), policy=draw(st.sampled_from(("say", "drop")))), chunk


@given(several_phrases(), st.integers(0, 9))
def test_phrases_in_another_order_are_those_of_a_pattern_in_that_order(case: tuple[Template, pa.RecordBatch], seed: int):
    sentence, chunk = case
    movable = sum(1 for phrase in parse(sentence.pattern) if phrase.fields)
    keys = np.arange(chunk.num_rows, dtype=np.uint64) + np.uint64(seed)
    found = sentence.render(chunk, keys=keys).to_pylist()
    for text, row in zip(found, to_rows(chunk), strict=True):
        assert text in {by_hand(sentence, row, list(order)) for order in permutations(range(movable))}
    alone = [sentence.render(chunk.slice(place, 1), keys=keys[place : place + 1])[0].as_py() for place in range(chunk.num_rows)]
    assert found == alone


def test_every_order_of_phrases_is_equally_likely_and_another_one_each_epoch():
    rows = fp.from_table(pa.table({name: [name] * 6000 for name in "abc"}))
    orders = [
        [row["text"] for row, _ in fp.iterate(template("Is {a}, {b}; no. {c}.", seed=seed)(rows), epoch=epoch)]
        for seed, epoch in ((0, 0), (0, 1), (1, 0))
    ]
    for order in orders:
        counts = Counter(order)
        assert {text.replace("Is ", "") for text in counts} == {f"{x}, {y}; no. {z}." for x, y, z in permutations("abc")}
        assert all(count == pytest.approx(1000, abs=150) for count in counts.values())
    for one, other in combinations(orders, 2):
        assert sum(x == y for x, y in zip(one, other, strict=True)) == pytest.approx(1000, abs=150)


@given(st.data())
def test_templates_in_any_order_obey_the_laws_of_stages(data: st.DataObject):
    table = pa.table({"a": range(9), "b": [None, "x", "y"] * 3})
    stage = template("a {a}. b {b}. both {b}{a}.", policy="drop", seed=3)
    laws.assert_chunks_do_not_matter(stage, data.draw(rechunkings(table)), data.draw(rechunkings(table)), epoch=1)
    laws.assert_random_access(stage(fp.from_table(table)), np.array([3, 1, 1]))
    laws.assert_resumable(stage(fp.from_table(table)))


def test_the_order_of_phrases_is_part_of_the_value():
    laws.assert_value(template("{a}, {b}", seed=1))
    laws.assert_told_apart(template("{a}, {b}", seed=1), template("{a}, {b}", seed=2))
    laws.assert_told_apart(template("{a}, {b}", seed=1), template("{a}, {b}"))
    laws.assert_prints(cast("Any", template("{a}, {b}", seed=1)), {"template": template})


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_every_format_is_written_as_python_writes_it(kind: str, data: st.DataObject):
    values = data.draw(st.lists(KINDS[kind][1] | st.none(), min_size=1, max_size=6))
    chunk = pa.record_batch({kind: _array(values, KINDS[kind][0])})
    sentence = Template(" and ".join(f"{{{kind}{form}}}" for form in KINDS[kind][2]))
    assert_renders_each_row(sentence.render, sentence, chunk)


@given(tables(min_columns=1), st.sampled_from(["say", "drop"]))
def test_columns_of_every_type_are_written_as_python_writes_their_values(table: pa.Table, policy: Policy):
    names = [f"column {number}" for number in range(table.num_columns)]
    sentence = Template(", ".join(f"{name} is {{{name}}}" for name in names), policy=policy)
    for chunk in table.rename_columns(names).to_batches():
        sentence.check(chunk.schema)
        assert_renders_each_row(sentence.render, sentence, chunk)


@given(cases(policies=("raise",)))
def test_with_the_raise_policy_a_chunk_fails_exactly_when_a_row_does(case: tuple[Template, pa.RecordBatch]):
    sentence, chunk = case
    try:
        expected = [sentence.render_row(row) for row in to_rows(chunk)]
    except DataError:
        with pytest.raises(DataError):
            sentence.render(chunk)
    else:
        assert sentence.render(chunk).to_pylist() == expected


@given(cases())
def test_rows_without_gaps_read_as_python_formats_them(case: tuple[Template, pa.RecordBatch]):
    sentence, chunk = case
    for row in to_rows(chunk):
        if not any(map(is_missing, row.values())):
            assert sentence.render_row(row) == sentence.pattern.format_map(row)


@pytest.mark.parametrize("trap", [["1e16"], ["-0.0", "0.0"], ["NaN"], ["0.1", None]])
def test_the_law_catches_rendering_with_arrows_own_casts(trap: list[str | None]):
    chunk = pa.record_batch({"x": [None if text is None else float(text) for text in trap], "ok": [True] * len(trap)})
    sentence = Template("{x} {ok}")

    def broken(chunk: pa.RecordBatch) -> pa.Array:
        return pa.compute.binary_join_element_wise(*(column.cast(pa.string()).fill_null("unknown") for column in chunk.columns), " ")

    with pytest.raises(AssertionError):
        assert_renders_each_row(broken, sentence, chunk)


def test_the_law_catches_a_dropped_phrase_that_leaves_its_separator():
    chunk = pa.record_batch({"a": pa.array([1, None]), "b": pa.array([None, 2], pa.int64())})
    sentence = Template("a {a}, b {b}.", policy="drop")
    assert_renders_each_row(sentence.render, sentence, chunk)
    with pytest.raises(AssertionError):
        assert_renders_each_row(lambda chunk: pa.array(["a 1, .", ", b 2."]), sentence, chunk)


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"name": "Ann", "age": 3, "city": "Bonn"}, "Ann is 3 years old, lives in Bonn; welcome!"),
        ({"name": "Ann", "age": None, "city": "Bonn"}, "lives in Bonn; welcome!"),
        ({"name": "Ann", "age": 3, "city": float("nan")}, "Ann is 3 years old, welcome!"),
        ({"name": None, "age": None, "city": None}, "welcome!"),
    ],
)
def test_dropping_leaves_out_the_phrase_and_its_separator(row: dict[str, Any], text: str):
    assert Template("{name} is {age} years old, lives in {city}; welcome!", policy="drop").render_row(row) == text


def test_the_last_phrase_that_stays_takes_the_final_mark():
    sentence = Template("Sex: {sex}\nAge: {age}\n", policy="drop")
    assert sentence.render_row({"sex": "f", "age": None}) == "Sex: f\n"
    assert sentence.render_row({"sex": None, "age": None}) == ""
    assert Template("{sex} is here, aged {age}.", policy="drop").render_row({"sex": "f", "age": None}) == "f is here."


def test_marks_without_space_behind_them_do_not_end_a_phrase():
    sentence = Template("{km}.{m} km at 3.5 m/s, {late}", policy="drop")
    assert sentence.render_row({"km": 1, "m": 5, "late": None}) == "1.5 km at 3.5 m/s"


def test_a_stage_adds_the_text_and_keeps_the_other_columns():
    rows = fp.from_examples([{"Age": 22, "Sex": "male"}, {"Age": None, "Sex": "female"}])
    dataset = fp.pipe(rows, template("A {Age} year old {Sex}.", missing="some", into="sentence"))
    assert list(dataset) == [
        {"Age": 22, "Sex": "male", "sentence": "A 22 year old male."},
        {"Age": None, "Sex": "female", "sentence": "A some year old female."},
    ]
    assert pickle.loads(pickle.dumps(dataset)) == dataset
    assert repr(dataset.stages[0]) == "template(pattern='A {Age} year old {Sex}.', missing='some', into='sentence')"


def test_the_stage_keeps_the_hidden_columns():
    chunk = number_rows(pa.record_batch({"x": [1, 2]}), 0, 5)
    found = cast("Any", template("{x}")).apply(chunk)
    assert found.schema.names == ["x", "__row__", "__key__", "text"]
    assert found.select(chunk.schema.names).equals(chunk)


def test_a_stage_replaces_a_column_of_the_same_name():
    assert list(fp.pipe(fp.from_examples([{"text": 5}]), template("Number {text}"))) == [{"text": "Number 5"}]


def test_a_template_without_fields_says_the_same_of_every_row():
    assert list(fp.pipe(fp.from_examples([{"x": 1}, {"x": 2}]), template("Who?", into="q"))) == [
        {"x": 1, "q": "Who?"},
        {"x": 2, "q": "Who?"},
    ]


def test_a_template_is_a_value():
    assert Template("{a}") == Template("{a}", missing="unknown", policy="say")
    assert {Template("{a}"): 1}[Template("{a}")] == 1
    assert pickle.loads(pickle.dumps(Template("{a}", policy="drop"))) == Template("{a}", policy="drop")


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("{a", "is not a format string: expected '}' before end of string. Write {{ and }} for literal braces."),
        ("a}", "is not a format string"),
        ("{}", "a field needs a column name, got ''. Write for example {Age}."),
        ("{0}", "a field needs a column name, got '0'"),
        ("{a.b}", "a template cannot access attributes or items of a value"),
        ("{a[0]}", "rename the column with rename_columns"),
        ("{a!x}", "the conversion must be !r, !s or !a, got !x"),
        ("{a:{b}}", "the format after the colon must not contain a field, got '{b}'"),
    ],
)
def test_a_pattern_that_cannot_work_is_refused_at_once(pattern: str, message: str):
    with pytest.raises(ArgumentError) as error:
        template(pattern)
    assert message in str(error.value)


def test_arguments_that_cannot_work_are_refused_at_once():
    with pytest.raises(ArgumentError, match=r"template\('Hello. \{a\} and \{b\}.'\) has only 1. Separate phrases by"):
        template("Hello. {a} and {b}.", seed=0)
    with pytest.raises(ArgumentTypeError, match=r"seed must be an int, got seed=1\.5"):
        template("{a}, {b}", seed=1.5)  # type: ignore[arg-type]  # the mistake under test
    with pytest.raises(UnknownNameError, match=r"No policy is named 'skip'\. Known: drop, raise, say."):
        template("{a}", policy="skip")  # type: ignore[arg-type]  # the mistake under test
    with pytest.raises(ArgumentTypeError, match="pattern must be a string, got pattern=5"):
        template(5)  # type: ignore[arg-type]  # the mistake under test
    with pytest.raises(ArgumentError, match="into='__row__' is empty or a reserved column name"):
        template("{a}", into="__row__")


def test_columns_and_formats_are_checked_before_any_row():
    rows = fp.from_examples([{"Age": 22, "Name": "Ann"}])
    with pytest.raises(SchemaError, match=r"needs the column 'Agee', which is missing\..* Columns: 'Age', 'Name'"):
        _ = fp.pipe(rows, template("{Agee}")).resolved
    with pytest.raises(SchemaError, match=r"field \{Name:.2f\} does not fit the column 'Name' of type string: Unknown format code 'f'"):
        _ = fp.pipe(rows, template("{Name:.2f}")).resolved


def test_a_value_that_does_not_fit_its_format_is_named_with_its_row():
    chunk = number_rows(pa.record_batch({"x": [65, -1]}), 0, 10)
    with pytest.raises(DataError, match=r"field \{x:c\} does not fit the value \[ -1 \] of source row 11: %c arg not in range"):
        Template("{x:c}").render(chunk)


@pytest.mark.skipif(find_spec("pandas") is not None, reason="with pandas installed, Arrow gives times of nanoseconds as its Timestamp")
def test_a_time_that_python_cannot_hold_is_named_with_its_row():
    chunk = pa.record_batch({"t": pa.array([0, 1], pa.timestamp("ns"))})
    with pytest.raises(DataError, match=r"field \{t\} does not fit the value \[ 1970-01-01 00:00:00.000000001 \] of row 1 of the chunk"):
        Template("{t}").render(chunk)


def test_a_missing_value_under_raise_is_named_with_its_row():
    chunk = pa.record_batch({"x": [1.0, float("nan")], "y": [None, None]}).slice(1)
    with pytest.raises(DataError, match=r"needs the field 'x', which is missing in row 0 of the chunk\. Fill missing values with map"):
        Template("{x} {y}", policy="raise").render(chunk)
    with pytest.raises(DataError, match="field 'y', which is missing in the row"):
        Template("{x} {y}", policy="raise").render_row({"x": 1, "y": None})


def test_decimals_keep_their_places():
    assert Template("{x}").render(pa.record_batch({"x": [decimal.Decimal("1.50")]})).to_pylist() == ["1.50"]
