"""A spec and its file say the same."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.support.errors import ConfigError, MissingFileError
from tests.app.kaggle.drawing import WORDS, dataset_specs

_FORMATS = pytest.mark.parametrize("suffix", [".yaml", ".yml", ".json"])
_BASE = "name: x\nkind: regression\ntrain: {name: a.csv}\ntarget: [y]\nmetric: mae\ncolumns: [{name: c, type: text}]\n"


@_FORMATS
@given(spec=dataset_specs())
def test_a_spec_reads_back_as_it_was_written(tmp_path_factory: pytest.TempPathFactory, suffix: str, spec: fp.kaggle.DatasetSpec):
    path = tmp_path_factory.getbasetemp() / f"spec{suffix}"
    fp.kaggle.save_spec(spec, path)
    assert fp.kaggle.load_spec(path) == spec


@_FORMATS
@given(specs=st.dictionaries(WORDS, dataset_specs(), max_size=2))
def test_a_registry_reads_back_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, specs: dict[str, fp.kaggle.DatasetSpec]
):
    path = tmp_path_factory.getbasetemp() / f"specs{suffix}"
    fp.kaggle.save_specs(specs, path)
    assert dict(fp.kaggle.load_specs(path)) == specs


@_FORMATS
def test_the_known_specs_read_back(tmp_path: Path, suffix: str):
    fp.kaggle.save_specs(fp.kaggle.SPECS, tmp_path / f"specs{suffix}")
    assert fp.kaggle.load_specs(tmp_path / f"specs{suffix}") == fp.kaggle.SPECS


def test_yaml_follows_the_rules_of_1_2(tmp_path: Path):
    path = tmp_path / "spec.yaml"
    path.write_text(_BASE.replace("regression", "binary").replace("mae", "f1") + "classes: [no, '012']\n")
    assert fp.kaggle.load_spec(path).classes == ("no", "012")


@pytest.mark.parametrize(
    ("text", "mistakes"),
    [
        (_BASE + "metrics: x\nid: 3\n", ["metrics (line 7): unknown key; did you mean 'metric'?", "id (line 8): expected text, got 3"]),
        (_BASE.replace("regression", "regresion"), ["kind (line 2): expected 'binary' or 'multiclass' or"]),
        (_BASE.replace("a.csv", "a.csv, rows: true"), ["train.rows (line 3): expected an integer, got True"]),
        (_BASE.replace("[y]", "y"), ["target (line 4): expected a list, got 'y'"]),
        (_BASE.replace("[y]", "\n- y\n- 3"), ["target[1] (line 6): expected text, got 3"]),
        (_BASE.replace("type: text", "type: txt"), ["columns[0].type (line 6): expected 'text' or 'categorical' or"]),
        (_BASE.replace("type: text", "type: text, values: [a]"), ["columns[0].values (line 6): expected names with values, got ['a']"]),
        (_BASE.replace("type: text", "type: categorical, values: {a: 1}"), ["columns[0].values.a (line 6): expected text, got 1"]),
        (
            _BASE.replace("type: text", "type: text, values: {a: b}"),
            ["columns[0] (line 6): Column 'c' is text, but only categorical columns can have values."],
        ),
        (_BASE.replace("metric: mae\n", ""), ["metric: a value is required"]),
        (_BASE.replace("mae", "maee"), ["metric (line 5): expected the name of a metric (accuracy, f1, "]),
        (_BASE.replace("mae", "f1"), ["the whole: The spec of 'x': f1 is a metric for binary or multilabel targets, got regression."]),
        (_BASE.replace("{name: a.csv}", "a.csv"), ["train (line 3): expected names with values, got 'a.csv'"]),
        (_BASE + "test: a.csv", ["test (line 7): expected names with values, got 'a.csv'"]),
        (_BASE.replace("[y]", "[]"), ["the whole: The spec of 'x': target is empty."]),
    ],
)
def test_every_mistake_is_listed_with_its_place(tmp_path: Path, text: str, mistakes: list[str]):
    path = tmp_path / "spec.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        fp.kaggle.load_spec(path)
    head, *lines = str(caught.value).splitlines()
    assert head == f"{f'{len(mistakes)} mistakes' if len(mistakes) > 1 else 'A mistake'} in {str(path)!r}:"
    for line, mistake in zip(lines, mistakes, strict=True):
        assert line.startswith(f"  {mistake}")


def test_mistakes_in_a_registry_name_the_spec(tmp_path: Path):
    path = tmp_path / "specs.json"
    path.write_text('{"mine": {"name": 3}}')
    with pytest.raises(ConfigError, match=r"mine\.name \(line 1\): expected text, got 3"):
        fp.kaggle.load_specs(path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", b"{", r"a\.json:1 is not valid JSON: .*Fix this line"),
        ("a.json", b'{"name": 1, "name": 2}', "duplicate key 'name'; remove one"),
        ("a.yaml", b"a: [", r"a\.yaml:1 is not valid YAML: .*Fix this line"),
        ("a.yaml", b"name: a\nname: b", r"a\.yaml:2: duplicate key 'name'; remove one"),
        ("a.yaml", b"columns: [{values: {1: one}}]", r"a\.yaml:1 has the key 1, which is not text\. Put the key in quotes"),
        ("a.yaml", b"\xff", "is not UTF-8 text: .*Save the file as UTF-8"),
        ("a.yaml", b"!!python/object:os.system {}", "has the tag .*Write a plain value"),
        ("a.yaml", b"- 1", r"a\.yaml holds a list, expected names and values, as in `name: titanic`"),
        ("a.json", b"null", r"a\.json holds nothing, expected names and values"),
        ("a.toml", b"", "A spec file must be YAML or JSON"),
    ],
)
def test_a_file_that_is_no_spec_is_refused(tmp_path: Path, name: str, content: bytes, message: str):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        fp.kaggle.load_spec(tmp_path / name)


def test_a_file_that_is_not_there_is_named(tmp_path: Path):
    with pytest.raises(MissingFileError, match="There is no spec at"):
        fp.kaggle.load_spec(tmp_path / "a.yaml")
