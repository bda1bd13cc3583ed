"""`mlxfp config`: what it shows is a configuration again, and every value says where it was said."""

import json
from pathlib import Path

import attrs
import jsonschema
import pytest
from hypothesis import given, settings

import mlxfp as fp
from mlxfp.app.cli import main
from mlxfp.app.cli.configuring import _with_origins, load
from mlxfp.app.config.loading import Resolved, resolve_config
from mlxfp.support.errors import ConfigError, MissingFileError
from tests.properties.app.test_configurations import configs


@settings(max_examples=20)  # the parser takes its time
@given(configs())
def test_what_is_shown_with_origins_is_the_configuration_again(tmp_path_factory, config):
    shown = "\n".join(_with_origins(Resolved(config, {"text.template": "run.yaml:3"})))
    path = tmp_path_factory.getbasetemp() / "shown.yaml"
    path.write_text(shown, "utf-8")
    assert resolve_config(path).config == config


@pytest.mark.parametrize("template", ["{a}\n\n  {b}: 'c' # d\n", "\n", "# no comment", "{a}\t\u0085{b}", " "])
def test_text_of_several_lines_stays_what_it_is_next_to_origins(tmp_path, template):
    config = fp.runs.RunConfig(text=attrs.evolve(fp.runs.RunConfig().text, template=template))
    path = tmp_path / "shown.yaml"
    path.write_text("\n".join(_with_origins(Resolved(config, {}))), "utf-8")
    assert resolve_config(path).config == config


def test_a_whole_configuration_is_shown_as_a_file_that_makes_the_same(tmp_path, capsys):
    path = tmp_path / "run.yaml"
    path.write_text("preset: titanic\ntraining:\n  size: 16\n")
    assert main(["config", "show", str(path), "training.epochs=3", "--data", "12: 30"]) == 0
    (tmp_path / "again.yaml").write_text(capsys.readouterr().out)
    made = resolve_config(tmp_path / "again.yaml").config
    assert made == resolve_config(path, overrides=["training.epochs=3", "data.path='12: 30'"]).config


def test_each_value_says_where_it_was_said(tmp_path, capsys):
    path = tmp_path / "run.yaml"
    path.write_text("preset: titanic\ntraining:\n  size: 16\n")
    assert main(["config", "show", str(path), "training.epochs=3", "--origins"]) == 0
    said = {line.split(":")[0].strip(): line.split("  # ")[1] for line in capsys.readouterr().out.splitlines() if "  # " in line}
    assert (said["epochs"], said["size"], said["max_length"], said["accumulate"]) == (
        "command line",
        f"{path}:3",
        "preset titanic",
        "default",
    )


def test_a_file_goes_before_a_preset_of_its_name_and_a_folder_does_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("titanic").mkdir()
    assert load("titanic").config.name == "titanic"
    Path("cats").mkdir()
    Path("rides.csv").write_text("a,b\n1,2\n")
    table = load("rides.csv", target="b").config  # a table
    assert (table.name, table.model.name, table.data.path, table.data.target) == ("rides", "auto", "rides.csv", "b")
    assert load("cats", ["training.epochs=3"]) == load(None, ["training.epochs=3"], data="cats")  # a folder of data
    Path("quick_test").write_text("name: mine\n")
    assert load("quick_test").config.name == "mine"


def test_the_short_form_of_the_path_goes_before_the_long_one():
    found = load("titanic", ["data.path=there"], data="null")
    assert (found.config.data.path, found.origin("data.path")) == ("null", "command line")


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (
            {"config": "titnic"},
            MissingFileError,
            r"'titnic' is not a file, a folder or the name of a preset\. Did you mean 'titanic'\? Give a folder of data, a YAML",
        ),
        ({"config": "no/such.yaml"}, MissingFileError, r"'no/such\.yaml' is not a file, .* or one of audio, auto, competition"),
        ({"config": "a.b=3"}, MissingFileError, r"A configuration must come before 'a\.b=3'\. Put a file or a preset first"),
        ({"config": "titanic", "overrides": ["epochs"]}, ConfigError, r"'epochs' is not of the form key\.sub=value"),
    ],
)
def test_mistakes_say_what_to_do(arguments, kind, message):
    with pytest.raises(kind, match=message):
        load(**arguments)


def test_a_check_lists_all_mistakes_or_says_that_there_are_none(tmp_path, capsys):
    path = tmp_path / "run.yaml"
    path.write_text("name: mine\n")
    assert main(["config", "check", str(path)]) == 0
    assert capsys.readouterr().out == f"{path} is a valid configuration of the run 'mine'.\n"
    assert main(["config", "check", "titanic", "training.epochs=3"]) == 0
    assert capsys.readouterr().out == "The preset titanic is a valid configuration of the run 'titanic'.\n"
    path.write_text("training:\n  epochs: 0\nmodle:\n  size: tiny\noptimizer:\n  name: adm\n")
    assert main(["config", "check", str(path)]) == 1
    said = capsys.readouterr().err
    assert f"training.epochs ({path}:2): expected at least 1, got 0" in said
    assert f"modle ({path}:3): unknown key; did you mean 'model'?" in said
    assert f"optimizer.name ({path}:6): expected " in said
    assert said.endswith("(did you mean 'adam'?), got 'adm'\n")


@pytest.mark.parametrize(("name", "near"), [("RMSLE", "rmsle"), ("Accuracy", "accuracy"), ("LogLoss", "log_loss"), ("AUC", "roc_auc")])
def test_a_name_in_another_case_gets_the_known_name(name, near, capsys):
    assert main(["config", "check", "titanic", f"competition.metric={name}"]) == 1
    assert capsys.readouterr().err.endswith(f" (did you mean {near!r}?), got {name!r}\n")


def test_the_schema_is_one_that_configurations_keep_to_and_lists_all_names(capsys):
    assert main(["config", "schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    jsonschema.validate(fp.runs.unstructure(fp.runs.RunConfig()), schema)
    assert schema["properties"]["optimizer"]["properties"]["name"]["enum"] == [*fp.runs.CHOICES["optimizer.name"]]


def test_presets_are_listed_in_a_line_each(capsys):
    assert main(["config", "presets"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(fp.runs.PRESETS)
    quick = next(line for line in lines if line.startswith("quick_test "))
    assert "data.limit=200" in quick
    assert "observers.plots=false" in quick  # as one would write it


@pytest.mark.parametrize("name", fp.runs.PRESETS)
def test_a_preset_is_shown_as_a_file_to_start_from(name, tmp_path, capsys):
    assert main(["config", "presets", name]) == 0
    shown = capsys.readouterr().out
    assert shown == fp.runs.write_document(fp.runs.PRESETS[name])
    (tmp_path / "run.yaml").write_text(shown)
    assert resolve_config(tmp_path / "run.yaml").config == resolve_config(preset=name).config


def test_a_preset_that_is_not_there_names_the_nearest(capsys):
    assert main(["config", "presets", "titanik"]) == 1
    assert capsys.readouterr().err.startswith("mlxfp: No preset is named 'titanik'. Did you mean 'titanic'?")


@pytest.mark.parametrize("command", ["config check", "run"])
def test_options_of_other_libraries_are_listed_with_all_other_mistakes(command, capsys):
    mistakes = ["training.epoch=3", "modle.name=bert", "optimizer.lr=1", "batch_size=3", "training.size=0"]
    assert main([*command.split(), "titanic", *mistakes]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "mlxfp: 5 mistakes in the configuration:",
        "  training.epoch (command line): unknown key; did you mean 'training.epochs'?",
        "  training.size (command line): expected at least 1, got 0",
        "  modle (command line): unknown key; did you mean 'model'?",
        "  optimizer.lr (command line): unknown key; did you mean 'optimizer.learning_rate'?",
        "  batch_size (command line): unknown key; did you mean 'training.size'?",
    ]


def test_a_check_finds_names_and_paths_of_nothing(tmp_path, capsys):
    path, spec = tmp_path / "run.yaml", tmp_path / "own.yaml"
    spec.write_text("name: x\nkind: binary\ntrain: {name: a.csv}\ntarget: [y]\nclasses: ['0', '1']\nmetric: acuracy\ncolumns: []\n")
    path.write_text("data:\n  path: no/where\n  spec: titanc\nmodel:\n  path: no_model\n")
    assert main(["config", "check", str(path)]) == 1
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "mlxfp: 2 mistakes in the configuration:"
    assert said[1].startswith(f"  data.spec ({path}:3): No data set is named 'titanc'. Did you mean 'titanic'?")
    assert said[2].startswith(f"  model.path ({path}:5): there is no folder 'no_model' of pretrained weights; give a folder, or a")
    for overrides, message in (
        (
            ["data.path=no/where"],
            "data.path (command line): there is no file or folder at 'no/where'; give the folder with the competition's files",
        ),
        (["data.path=."], "data.path (command line): '.' has no file 'train.csv', the train file of 'titanic'"),
        (["data.path=.", "data.spec=null"], "data.path (command line): There is no train.csv in '.'"),
        (["competition.metric=rmse"], "competition.metric (command line): rmse is a metric for multilabel, regression, "),
        ([f"data.spec={spec}"], f"A mistake in {str(spec)!r}:\n  metric (line 6): expected the name of a metric ("),
    ):
        assert main(["config", "check", "titanic", *overrides]) == 1
        assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("data.cache_size=3", "there is no memory option: a run keeps its rows in memory"),
        ("data.num_producers=2", "did you mean 'data.workers'"),
        ("data.num_workers=2", "did you mean 'data.workers'"),
        ("data.prefetch_factor=2", "did you mean 'data.prefetch'"),
        ("data.memory_limit_gb=8", "there is no memory option: a run keeps its rows in memory"),
        ("optimizer.type=adamw", "did you mean 'optimizer.name'"),
        ("observers.eval_strategy=epoch", "did you mean 'observers.evaluate_every'"),
        ("kaggle.name=ship", "mlxfp submit RUN --competition NAME"),
    ],
)
def test_option_names_of_other_libraries_get_a_hint(override, message):
    """A user of another library reads the option with the same meaning, or the reason for a missing option."""
    with pytest.raises(ConfigError, match=message):
        load("titanic", [override])


def test_show_refuses_unknown_names(capsys):
    """`mlxfp config show` checks the names of parts like the other commands."""
    assert main(["config", "show", "titanic", "model.name=resnet"]) == 1
    assert "model.name (command line): expected 'bert'" in capsys.readouterr().err
