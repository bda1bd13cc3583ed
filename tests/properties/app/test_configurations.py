"""Configurations: laws of reading and writing them, and the messages of every mistake."""

import json
from typing import Literal, get_args, get_origin

import attrs
import jsonschema
import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.app.config.classes import DataConfig, RunConfig, TrainingConfig, option_paths
from mlxfp.app.config.common_names import COMMON_NAMES
from mlxfp.app.config.loading import json_schema, resolve_config
from mlxfp.support.errors import ArgumentTypeError, ConfigError, MissingFileError, UnknownNameError
from mlxfp.support.options import ARGUMENTS
from mlxfp.support.yaml_files import read_document, read_value, write_document


def values_of(kind, checks):
    """Draw values of a field that keep to its bounds."""
    if attrs.has(kind):
        return configs(kind)
    if get_origin(kind) is Literal:
        return st.sampled_from(get_args(kind))
    if type(None) in get_args(kind):
        return st.none() | values_of(get_args(kind)[0], checks)
    bounds = {check.word: check.bound for check in checks}
    if kind == ARGUMENTS:
        plain = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-5, 5) | st.text(st.characters(codec="utf-8"), max_size=5)
        return st.dictionaries(
            st.from_regex(r"[a-z_]{1,5}", fullmatch=True), plain | st.lists(plain, max_size=2).map(tuple), max_size=2
        ).map(lambda given: tuple(given.items()))
    if get_origin(kind) is tuple:
        return st.lists(values_of(str, checks), max_size=2).map(tuple)
    if "pattern" in bounds:
        return st.from_regex(bounds["pattern"], fullmatch=True).map(str.strip)
    if kind is int:
        return st.integers(bounds.get("minimum", -5), bounds.get("maximum", 10_000))
    if kind is float:
        least, most = (bounds.get(word, other) for word, other in (("minimum", bounds.get("exclusiveMinimum", -5)), ("maximum", 0.75)))
        return st.floats(least, most, exclude_min="exclusiveMinimum" in bounds, allow_subnormal=False)
    return st.booleans() if kind is bool else st.text(st.characters(codec="utf-8"), max_size=12)


def configs(kind=RunConfig):
    return st.builds(kind, **{field.name: values_of(field.type, field.metadata.get("checks", ())) for field in attrs.fields(kind)})


@given(configs())
def test_a_configuration_comes_back_from_plain_values(config):
    assert fp.runs.structure(fp.runs.unstructure(config), RunConfig) == config


@settings(max_examples=15)  # the parser takes its time
@given(configs())
def test_a_configuration_comes_back_from_yaml_and_from_json(tmp_path_factory, config):
    folder = tmp_path_factory.getbasetemp()
    (folder / "run.yaml").write_text(write_document(fp.runs.unstructure(config)), "utf-8")
    (folder / "run.json").write_text(json.dumps(fp.runs.unstructure(config), indent=1), "utf-8")
    assert resolve_config(folder / "run.yaml").config == config
    assert resolve_config(folder / "run.json").config == config


@given(configs())
def test_a_configuration_keeps_to_the_schema_for_editors(config):
    jsonschema.validate(json.loads(json.dumps(fp.runs.unstructure(config))), json_schema())


@pytest.mark.parametrize("values", [{"training": {"epochs": 0}}, {"training": {"epoch": 1}}, {"text": {"form": "poem"}}, {"model": 3}])
def test_the_schema_for_editors_refuses_what_we_refuse(values):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(values, json_schema(fp.runs.CHOICES))
    with pytest.raises(ConfigError):
        fp.runs.structure(values, RunConfig, choices=fp.runs.CHOICES)


@pytest.mark.parametrize("name", fp.runs.PRESETS)
def test_every_preset_is_a_configuration(name):
    resolved = resolve_config(preset=name)
    assert resolved.config != RunConfig()
    assert set(resolved.origins.values()) == {f"preset {name}"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-5", 1e-5),
        ("no", "no"),
        ("on", "on"),
        ("012", 12),
        ("0o14", 12),
        ("12:30", "12:30"),
        ("true", True),
        ("null", None),
        ("", None),
        ("3.0", 3.0),
        ("1_000", 1000),
        ("'3'", "3"),
        ("2026-11-21", "2026-11-21"),
        ("[1, {a: b}]", [1, {"a": "b"}]),
        ("a=b", "a=b"),
    ],
)
def test_yaml_is_read_by_the_rules_of_version_1_2(text, value):
    found = read_value(text)
    assert found == value
    assert type(found) is type(value)


def test_the_last_value_counts_and_each_value_has_its_origin(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("preset: titanic\ntraining:\n  epochs: 4\n  size: 16\n# a remark\nmodel: {size: base}\n")
    resolved = resolve_config(path, overrides=["training.epochs=2", "data.path=a=b"])
    assert (resolved.config.training.epochs, resolved.config.training.size, resolved.config.data.path) == (2, 16, "a=b")
    assert resolved.config.data.spec == "titanic"  # next to a value of the same part from a file
    places = ("training.epochs", "training.size", "model.size", "data.spec", "data.path", "text.drop")
    origins = ["command line", f"{path}:4", f"{path}:6", "preset titanic", "command line", "default"]
    assert [resolved.origin(place) for place in places] == origins
    assert resolve_config(path, preset="quick_test").config.data.spec is None


def test_all_mistakes_come_at_once_each_with_its_line(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(
        "training:\n  epochs: 3.7\n  size: true\n  sede: 1\n  ema: 1.5\n  compute_dtype: bfloat\n"
        "optimizer:\n  learning_rate: '1e-5'\ndata: here\nmodle:\n  size: tiny\nobservers:\n  keep: 0\n"
    )
    with pytest.raises(ConfigError) as caught:
        resolve_config(path, overrides=["observers.patience=0"])
    assert str(caught.value).splitlines() == [
        "10 mistakes in the configuration:",
        f"  training.epochs ({path}:2): expected an integer, got 3.7",
        f"  training.size ({path}:3): expected an integer, got True",
        f"  training.sede ({path}:4): unknown key; did you mean 'seed'?",
        f"  training.ema ({path}:5): expected below 1, got 1.5",
        f"  training.compute_dtype ({path}:6): expected 'float32' or 'bfloat16' or 'float16' (did you mean 'bfloat16'?), got 'bfloat'",
        f"  optimizer.learning_rate ({path}:8): expected a number, got '1e-5'",
        f"  data ({path}:9): expected names with values, got 'here'",
        f"  modle ({path}:10): unknown key; did you mean 'model'?",
        f"  observers.keep ({path}:13): expected at least 1, got 0",
        "  observers.patience (command line): expected at least 1, got 0",
    ]


def test_an_integer_is_a_number_and_nothing_else_is_taken_for_something():
    assert fp.runs.structure({"ema": None, "epochs": 3}, TrainingConfig).epochs == 3
    assert resolve_config(overrides=["optimizer.learning_rate=1"]).config.optimizer.learning_rate == 1.0
    for text in ("1", "yes", "'true'", "null"):
        with pytest.raises(ConfigError, match="expected true or false"):
            resolve_config(overrides=[f"training.skip_nonfinite={text}"])


def test_classes_check_themselves_too():
    with pytest.raises(ValueError, match="expected at least 10"):
        DataConfig(limit=3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\na: 2\n", r"run\.yaml:2: duplicate key 'a'; remove one\."),
        ("a: [1\nb: 2\n", r"run\.yaml:\d is not valid YAML: "),
        ("training: !!python/object:os.system {}\n", r"has the tag '.*python/object:os\.system'\. Write a plain value"),
        ("1: 2\n", r"has the key 1, which is not text\. Put the key in quotes\."),
        ("", r"holds nothing, expected names and values"),
        ("- 1\n", r"holds a list, expected names and values"),
        ("preset: [a]\n", r"preset must be a name, got \['a'\]"),
    ],
)
def test_files_that_are_no_configuration(tmp_path, text, message):
    path = tmp_path / "run.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        resolve_config(path)


def test_files_that_are_not_there_or_no_text(tmp_path):
    with pytest.raises(MissingFileError, match="There is no configuration at"):
        resolve_config(tmp_path / "none.yaml")
    (tmp_path / "bytes.yaml").write_bytes(b"name: \xff\n")
    with pytest.raises(ConfigError, match=r"is not UTF-8 text: .* at byte 6"):
        resolve_config(tmp_path / "bytes.yaml")


def test_other_mistakes_of_the_caller():
    with pytest.raises(UnknownNameError, match="Did you mean 'titanic'"):
        resolve_config(preset="titanik")
    with pytest.raises(ConfigError, match=r"'training\.epochs' is not of the form key\.sub=value"):
        resolve_config(overrides=["training.epochs"])
    with pytest.raises(ConfigError, match=r"A configuration has no option 'training\.epoch'"):
        resolve_config().origin("training.epoch")


def test_json_is_read_as_json(tmp_path):
    path = tmp_path / "run.json"
    path.write_text('{"name": "\\ud800\\udc00", "training": {"epochs": 1}}')
    assert resolve_config(path).config.name == "\U00010000"
    path.write_text('{"name": "a",\n "name": "b"}')
    with pytest.raises(ConfigError, match=r"run\.json: duplicate key 'name'; remove one"):
        resolve_config(path)
    path.write_text('{"name": "a"\n"seed": 1}')
    with pytest.raises(ConfigError, match=r"run\.json:2 is not valid JSON"):
        resolve_config(path)


def test_lines_are_those_of_the_names(tmp_path):
    path = tmp_path / "run.json"
    path.write_text('{\n "training": {\n  "epochs": 3\n }\n}')
    assert read_document(path).lines == {("training",): 2, ("training", "epochs"): 3}


def test_the_home_folder_is_meant_by_a_tilde_wherever_a_path_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "run.yaml").write_text("data: {path: ~/titanic}\nmodel: {path: ~}\n")
    config = resolve_config(tmp_path / "run.yaml", overrides=["output=~/runs", "text.tokenizer=~/bert"]).config
    assert (config.data.path, config.model.path) == (str(tmp_path / "titanic"), None)
    assert (config.output, config.text.tokenizer) == (str(tmp_path / "runs"), str(tmp_path / "bert"))


@pytest.mark.parametrize(
    ("said", "message", "note"),
    [
        ("epochs=3", r"epochs \(command line\): unknown key; did you mean 'training\.epochs'\?", ""),
        ("lr=1e-3", r"lr \(command line\): unknown key; did you mean 'optimizer\.learning_rate'\?", ""),
        ("batch_size=32", r"batch_size \(command line\): unknown key; did you mean 'training\.size'\?", ""),
        ("data.batch_size=32", r"data\.batch_size \(command line\): unknown key; did you mean 'training\.size'\?", ""),
        ("target=label", r"target \(command line\): unknown key; did you mean 'data\.target'\?", ""),
        ("size=8", r"size \(command line\): unknown key; did you mean 'model\.size' or 'training\.size'\?", ""),
        (
            "text.template={Age} {Sex}",
            "is not valid YAML",
            """quote the value for YAML and the whole argument for the shell: 'text.template="{Age} {Sex}"'.""",
        ),
    ],
)
def test_an_override_that_is_nearly_right_says_what_to_write(said, message, note):
    with pytest.raises(ConfigError, match=message) as caught:
        resolve_config(overrides=[said])
    assert note in "".join(getattr(caught.value, "__notes__", ()))


def test_every_common_name_leads_to_an_option_or_to_a_sentence():
    assert {meaning for meaning in COMMON_NAMES.values() if " " not in meaning} <= set(option_paths())
    own = {path.rpartition(".")[2].replace("_", "") for path in option_paths()}
    assert not own & set(COMMON_NAMES)  # those are found without the table


def test_a_key_of_another_section_or_library_leads_to_its_place(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("training:\n  lr: 1e-3\n  num-epochs: 3\n  warmup: 0.1\ndata: {batchSize: 8, label: y}\ndevice: gpu\n")
    with pytest.raises(ConfigError) as caught:
        resolve_config(path)
    assert [line.partition("unknown key; ")[2] for line in str(caught.value).splitlines()[1:]] == [
        "did you mean 'optimizer.learning_rate'?",
        "did you mean 'training.epochs'?",
        "did you mean 'schedule.warmup'?",
        "did you mean 'training.size'?",
        "did you mean 'data.target'?",
        "there is no device option: MLX uses the device of this machine, see mlxfp doctor",
    ]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: TrainingConfig(batch_size=32),
            r"TrainingConfig has no option 'batch_size'\. Write TrainingConfig\(size=\.\.\.\)\. Known: ",
        ),
        (lambda: RunConfig(lr=1e-3), r"RunConfig has no option 'lr'\. Write OptimizerConfig\(learning_rate=\.\.\.\)\."),
        (lambda: evolve(RunConfig(), epochs=3), r"RunConfig has no option 'epochs'\. Write TrainingConfig\(epochs=\.\.\.\)\."),
        (lambda: TrainingConfig(sede=1), r"TrainingConfig has no option 'sede'\. Did you mean 'seed'\? Known: seed, epochs"),
        (lambda: DataConfig(idcolumn="y"), r"DataConfig has no option 'idcolumn'\. In a run, a spec names the columns: "),
    ],
)
def test_keywords_of_other_libraries_lead_to_ours(make, message):
    with pytest.raises(ArgumentTypeError, match=message):
        make()


@pytest.mark.parametrize("said", ["mine", "mine:", ":part", "a b:c", "./mine:part", "os:system:x", "../mine:part"])
def test_a_part_of_ones_own_is_a_name_in_a_module(said):
    with pytest.raises(
        ConfigError, match=r"own\.loss \(command line\): expected the name of a part of a module, as in my_module:my_function"
    ):
        resolve_config(overrides=[f"own.loss='{said}'"])
    with pytest.raises(ConfigError, match=r"own\.observers"):
        resolve_config(overrides=[f"own.observers=['a:b', '{said}']"])
    assert resolve_config(overrides=["own.observers=['a.b:c']"]).config.own.observers == ("a.b:c",)


@pytest.mark.parametrize("option", ["text.max_length", "text.vocab_size", "training.size", "validation.repeats"])
def test_case_e13_a_number_beyond_memory_is_refused_before_anything_is_read(option):
    with pytest.raises(ConfigError, match=rf"{option} \(command line\): expected at most"):
        fp.runs.load_config(overrides=[f"{option}={10**12}"])
