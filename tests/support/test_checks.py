"""Checks of arguments, errors and optional packages."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import mlxfp as fp
from mlxfp.support import errors
from mlxfp.support.checks import (
    as_class_names,
    as_strings,
    check_callable,
    check_choice,
    check_columns,
    check_integer,
    check_not_negative,
    check_positive,
    check_text,
    check_types,
    check_unique,
)
from mlxfp.support.errors import (
    ArgumentError,
    ArgumentTypeError,
    MissingExtraError,
    MlxfpError,
    SchemaError,
    UnknownNameError,
    unknown_name,
)
from mlxfp.support.optional import optional


@pytest.mark.parametrize(
    ("check", "good", "bad", "kind", "words"),
    [
        (check_integer, 3, 3.0, ArgumentTypeError, "n must be an int, got n=3.0."),
        (check_integer, -3, True, ArgumentTypeError, "n must be an int, got n=True."),
        (check_positive, 1, 0, ArgumentError, "n must be at least 1, got n=0."),
        (check_positive, 1, "1", ArgumentTypeError, "n must be an int, got n='1'."),
        (check_not_negative, 0, -1, ArgumentError, "n must be at least 0, got n=-1."),
        (check_not_negative, 0, None, ArgumentTypeError, "n must be an int, got n=None."),
        (check_text, "", b"", ArgumentTypeError, "n must be a string, got n=b''."),
        (check_callable, len, 3, ArgumentTypeError, "n must be a function, got n=3."),
    ],
)
def test_a_check_lets_good_values_pass_and_names_bad_ones(check: Any, good: Any, bad: Any, kind: type[Exception], words: str):
    check()
    check(n=good)
    with pytest.raises(kind) as caught:
        check(m=good, n=bad)
    assert str(caught.value) == words


def test_a_choice_is_one_of_the_known_ones():
    check_choice(("left", "right"), side="left")
    with pytest.raises(UnknownNameError, match=r"No side is named 'lft'. Did you mean 'left'\? Known: left, right."):
        check_choice(("left", "right"), side="lft")
    with pytest.raises(UnknownNameError, match=r"No side is named 'None'. Known: left, right."):
        check_choice(("left", "right"), side=None)


def test_columns_that_are_missing_are_named_with_those_that_are_there():
    check_columns(["a"], ["a", "b"], "stage")
    with pytest.raises(SchemaError, match=r"stage needs the columns 'c', 'd', which are missing. Columns: 'a'."):
        check_columns(["c", "a", "d"], ["a"], "stage")
    with pytest.raises(SchemaError, match=r"which is missing\. Did you mean 'Age'\? Columns: 'Age', 'Sex'\."):
        check_columns(["Aeg"], ["Age", "Sex"], "stage")
    with pytest.raises(SchemaError, match=r"stage needs the column 'a', which is missing. Columns: none."):
        check_columns(["a"], [], "stage")
    with pytest.raises(
        SchemaError,
        match=r"Columns: 'text'\. input_ids: the stage tokenize makes this column from a text column; add the stage before this one\.$",
    ):
        check_columns(["input_ids"], ["text"], "stage")


def test_types_are_checked_and_named():
    check_types(int, x=1, y=True)
    check_types((int, str), x="a")
    with pytest.raises(ArgumentTypeError, match=r"x must be int or str, got float: 1.5."):
        check_types((int, str), x=1.5)


def test_names_that_repeat_are_told():
    check_unique({"columns": ["a", "b"]})
    with pytest.raises(ArgumentError, match=r"columns repeats 'a', 'b'; each name may appear once."):
        check_unique({"columns": ["b", "a", "c", "a", "b"]})


def test_strings_are_given_as_a_list():
    assert as_strings("columns", ["a", "b"]) == ("a", "b")
    assert as_strings("columns", {"a": 1}) == ("a",)
    assert as_strings("null_values", ["a", "a"], unique=False) == ("a", "a")
    assert as_strings("columns", []) == ()
    with pytest.raises(ArgumentTypeError, match=r"columns must be a list of strings, got the string 'ab'\. Write \['ab'\]\."):
        as_strings("columns", "ab")
    with pytest.raises(ArgumentTypeError, match=r"columns must be a list of strings, got int: 3\."):
        as_strings("columns", 3)
    for text, names in {"No, Yes": "['No', 'Yes']", ",": "[',']", "": "['']"}.items():
        with pytest.raises(ArgumentTypeError) as caught:
            as_strings("classes", text)
        assert str(caught.value) == f"classes must be a list of strings, got the string {text!r}. Write {names}."
    with pytest.raises(ArgumentTypeError, match=r"columns\[1\] must be a string, got columns\[1\]=1"):
        as_strings("columns", ["a", 1])
    with pytest.raises(ArgumentError, match="columns repeats 'a'"):
        as_strings("columns", ["a", "a"])
    with pytest.raises(ArgumentError, match="columns must name at least one column, got none"):
        as_strings("columns", [], empty=False)


@pytest.mark.parametrize("classes", [{"yes", "no"}, frozenset({"yes", "no"})])
def test_a_set_of_classes_is_refused(classes: Any):
    """The labels would be 0 and 1 in one process, and 1 and 0 in another."""
    kind = type(classes).__name__
    said = f"classes must be a list in a fixed order, got {kind}. The order of a set differs between processes. Write ['no', 'yes']."
    for make in (lambda: fp.collators.text(pad_id=0, label="y", classes=classes), lambda: as_class_names(classes)):
        with pytest.raises(ArgumentTypeError) as caught:
            make()
        assert str(caught.value).removeprefix("text: ") == said
    assert as_class_names({"no": 0, "yes": 1}.keys()) == ("no", "yes")


def test_a_set_of_columns_is_refused():
    """The fingerprint of the pipeline would differ between processes."""
    with pytest.raises(ArgumentTypeError) as caught:
        fp.select_columns({"b", "a"})
    assert str(caught.value) == (
        "select_columns: columns must be a list in a fixed order, got set. The order of a set differs between processes. Write ['a', 'b']."
    )


def test_every_error_is_ours_and_a_built_in_one():
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, MlxfpError) and kind is not MlxfpError]
    assert len(kinds) >= 10
    for kind in kinds:
        builtin = [base for base in kind.__mro__ if base.__module__ == "builtins" and base not in (Exception, BaseException, object)]
        assert builtin, f"{kind.__name__} is also a built-in error"
        assert kind.__doc__


def test_the_message_of_an_unknown_name_is_not_quoted():
    error = unknown_name("collator", "x", [])
    assert str(error) == "No collator is named 'x'. Known: none."
    assert isinstance(error, KeyError)


def test_an_optional_package_is_imported_or_its_extra_named(monkeypatch: pytest.MonkeyPatch):
    assert optional("json", extra="x", needed_by="y").__name__ == "json"
    with pytest.raises(MissingExtraError, match=r'^y needs nothing_here. Install it with: pip install "mlxfp\[x\]"$'):
        optional("nothing_here.inside", extra="x", needed_by="y")
    broken = ModuleType("broken_package")
    monkeypatch.setitem(sys.modules, "broken_package", broken)
    with pytest.raises(MissingExtraError, match=r"needs broken_package"):
        optional("broken_package.inside", extra="x", needed_by="y")


def test_a_package_that_lacks_another_one_says_so_itself(tmp_path: Any, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "needs_more.py").write_text("import nothing_here_either\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'nothing_here_either'") as caught:
        optional("needs_more", extra="x", needed_by="y")
    assert not isinstance(caught.value, MissingExtraError)


def test_the_laws_without_hypothesis_name_the_extra():
    script = "import sys; sys.modules['hypothesis'] = None; import mlxfp.testing.laws"
    root = Path(__file__).parent.parent.parent
    run = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=False)
    assert run.stderr.splitlines()[-1] == (
        'mlxfp.support.errors.MissingExtraError: mlxfp.testing needs hypothesis. Install it with: pip install "mlxfp[testing]"'
    )
