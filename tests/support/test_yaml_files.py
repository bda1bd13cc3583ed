"""What is written is read back, and every value knows its line."""

import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mlxfp.support.errors import ConfigError, MissingFileError
from mlxfp.support.yaml_files import read_document, read_value, write_document

_TEXTS = st.text(st.characters(codec="utf-8")) | st.sampled_from(
    ["no", "1e-5", "012", "null", "~", "", " x ", "12:30", "2020-01-01", "2020-01-01 10:00:00", "<<", "a: b", "#", "- a", "&a", "*a", "!a"]
)
_SINGLE = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _TEXTS
_TREES = st.dictionaries(
    _TEXTS, st.recursive(_SINGLE, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3), max_leaves=6)
)


def typed(value):
    """Add types, for 1, 1.0 and True are equal."""
    if isinstance(value, dict):
        return {name: typed(inner) for name, inner in value.items()}
    return [typed(inner) for inner in value] if isinstance(value, list) else (type(value), value)


@given(values=_TREES)
@example(values={"a": "\x85", "\x85": "\u2028\ufeff\x1b"})
def test_what_is_written_is_read_back(tmp_path_factory, values):
    folder = tmp_path_factory.getbasetemp()
    texts = {
        "tree.yaml": write_document(values),
        "a.json": json.dumps(values),
        "b.json": json.dumps(values, ensure_ascii=False, indent="\t"),
    }
    for name, text in texts.items():
        (folder / name).write_bytes(text.encode())
        assert typed(read_document(folder / name).values) == typed(values)


def places_of(values, place=()):
    inside = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    return [each for name, inner in inside for each in ((*place, name), *places_of(inner, (*place, name)))]


@given(
    values=st.dictionaries(
        st.text("abc", min_size=1), st.recursive(st.integers(), lambda one: st.lists(one) | st.dictionaries(st.text("ab"), one))
    )
)
def test_every_value_of_a_file_has_its_line(tmp_path_factory, values):
    path = tmp_path_factory.getbasetemp() / "lines.json"
    path.write_text(json.dumps(values, indent=1))
    lines = read_document(path).lines
    assert [*lines] == places_of(values)
    assert [*lines.values()] == sorted(set(lines.values()))  # one value a line, in their order
    text = path.read_text().splitlines()
    assert all(isinstance(place[-1], int) or f'"{place[-1]}":' in text[line - 1] for place, line in lines.items())


def test_what_is_merged_in_has_no_line_of_its_own(tmp_path: Path):
    (tmp_path / "a.yaml").write_text("base: &base\n  x: 1\nmine:\n  <<: *base\n  y: [2,\n    3]\n")
    document = read_document(tmp_path / "a.yaml")
    assert document.values == {"base": {"x": 1}, "mine": {"y": [2, 3], "x": 1}}
    assert document.lines == {("base",): 1, ("base", "x"): 2, ("mine",): 3, ("mine", "y"): 5, ("mine", "y", 0): 5, ("mine", "y", 1): 6}
    places = [("mine", "x"), ("mine", "y", 1), ("mine", "z", "a"), ("z",), ()]
    assert [document.line(place) for place in places] == ["line 3", "line 6", "line 3", "", ""]


def test_json_that_is_no_yaml_has_no_lines(tmp_path: Path):
    (tmp_path / "a.json").write_text('{"a": "\x7f"}')
    assert read_document(tmp_path / "a.json").values == {"a": "\x7f"}
    assert read_document(tmp_path / "a.json").line(("a",)) == ""


def test_a_mark_of_the_encoding_is_passed_over(tmp_path: Path):
    for name, text in (("a.yaml", "a: 1"), ("a.json", '{"a": 1}')):
        (tmp_path / name).write_text(text, "utf-8-sig")
        assert read_document(tmp_path / name).values == {"a": 1}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{a: &it true, b: *it}", {"a": True, "b": True}),
        ("{a: &it 1e-5, b: *it}", {"a": 1e-5, "b": 1e-5}),
        ("2001-12-14 21:59:43", "2001-12-14 21:59:43"),
        ("|\n a\n b", "a\nb"),
        ("0x1F", 31),
        ("'it''s'", "it's"),
    ],
)
def test_values_are_plain_however_they_are_written(text, value):
    assert typed(read_value(text)) == typed(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: {c: 1,\n c: 2}", r"a\.yaml:3: duplicate key 'c'; remove one\."),
        ("a: [1\nb: 2\n", r"a\.yaml:2 is not valid YAML: .*Fix this line\."),
        ("&x {b: *x}", r"a\.yaml:1: values are nested more than 100 deep"),
        ("a: " + "[" * 101 + "]" * 101, r"a\.yaml:1: values are nested more than 100 deep"),
        ("a: " + "[" * 2000 + "]" * 2000, r"a\.yaml: values are nested more than 100 deep"),
        ("a: " + "9" * 5000, r"a\.yaml has an unreadable value: .*digits.*\. Write a plain value"),
        ("a: *b", r"a\.yaml:1 is not valid YAML: found undefined alias 'b'\. Fix this line\."),
        ("a: \x01", r"a\.yaml is not valid YAML: unacceptable character #x0001.*Fix the file\."),
        ("a:\n- b: !mine 3", r"a\.yaml:2 has the tag '!mine'\. Write a plain value: a number, text, a list or names with values\."),
        ("a: !!binary aGk=", r"a\.yaml:1 has a bytes: b'hi'\. Write a plain value"),
        ("a:\n  b: {1: 2}", r"a\.yaml:2 has the key 1, which is not text\. Put the key in quotes\."),
        ("1: 2", r"a\.yaml has the key 1, which is not text"),
        ("", r"a\.yaml holds nothing, expected names and values, as in `name: titanic`\."),
        ("[1]", r"a\.yaml holds a list, expected"),
        ("no", r"a\.yaml holds the value 'no', expected"),
    ],
)
def test_what_is_no_document_is_refused_with_its_line(tmp_path, text, message):
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_document(tmp_path / "a.yaml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"a": 1\n"b": 2}', r"a\.json:2 is not valid JSON: .*Fix this line\."),
        (b'{"b": {"a": 1, "a": 2}}', r"a\.json: duplicate key 'a'; remove one\."),
        (b"\xff", r"a\.json is not UTF-8 text: invalid start byte at byte 0\. Save the file as UTF-8\."),
    ],
)
def test_json_is_held_to_its_own_rules(tmp_path, text, message):
    (tmp_path / "a.json").write_bytes(text)
    with pytest.raises(ConfigError, match=message):
        read_document(tmp_path / "a.json")


def test_a_file_that_is_not_there_is_called_what_it_is(tmp_path: Path):
    with pytest.raises(MissingFileError, match=r"There is no recipe at '.*a\.yaml'\. Give the path of a YAML or JSON file\."):
        read_document(tmp_path / "a.yaml", what="recipe")


def test_writing_changes_nothing_for_others_that_use_the_parser():
    from ruamel.yaml.representer import SafeRepresenter

    before = dict(SafeRepresenter.yaml_representers)
    write_document({"a": None, "b": "\x85"})
    assert SafeRepresenter.yaml_representers == before


def test_json_that_is_deep_or_has_endless_numbers_is_refused(tmp_path: Path):
    for text, message in (
        ('{"a": ' + "[" * 100_000, "nested more than 100 deep"),
        (f'{{"a": {"9" * 5000}}}', "has an unreadable value: .*digits"),
    ):
        (tmp_path / "a.json").write_text(text)
        with pytest.raises(ConfigError, match=message):
            read_document(tmp_path / "a.json")


def test_a_file_of_data_is_no_configuration(tmp_path: Path):
    with (tmp_path / "a.yaml").open("wb") as file:
        file.truncate((1 << 24) + 1)
    with pytest.raises(
        ConfigError,
        match=r"a\.yaml has 16,777,217 bytes, but a spec has at most 16,777,216 bytes\. Give the path of a spec, not of a data file\.",
    ):
        read_document(tmp_path / "a.yaml", what="spec")
