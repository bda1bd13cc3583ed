"""E17: damaged logs, recipes, configurations and templates are errors of mlxfp, never errors of other libraries."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

import mlxfp as fp
from tests.support.damage import damaged

LINES: list[Any] = [
    *({"event": "Stepped", "step": i, "epoch": 0, "seconds": i / 2, "metrics": {"loss": 0.5 / i, "weight": 3.0}} for i in range(1, 8)),
    {"event": "Evaluated", "step": 7, "epoch": 0, "seconds": 3.0, "metrics": {"accuracy": 0.5, "curve": None}},
    {"event": "Warned", "step": 7, "epoch": 0, "seconds": 3.0, "message": "odd"},
    {"event": "Stopped", "step": 7, "epoch": 0, "seconds": 4.0, "reason": "end"},
]
ODD: tuple[Any, ...] = (None, True, -1, 0, 2**70, 1e308, float("nan"), float("inf"), "", "x", [], [1], {}, {"a": 1}, {"loss": "x"}, 10**400)


def changed(value: Any, chance: random.Random) -> Any:
    """Return JSON with one changed or missing value."""
    if isinstance(value, dict) and value and chance.random() < 0.85:
        key = chance.choice(list(value))
        rest = {name: inner for name, inner in value.items() if name != key}
        return rest if chance.random() < 0.2 else {**rest, key: changed(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.9:
        at = chance.randrange(len(value))
        return [*value[:at], changed(value[at], chance), *value[at + 1 :]]
    return chance.choice(ODD)


def text_of(lines: Any) -> bytes:
    return "".join(json.dumps(line) + "\n" for line in (lines if isinstance(lines, list) else [lines])).encode()


@pytest.mark.parametrize("kind", ["values", "bytes"])
def test_e17_a_report_of_a_damaged_log_is_a_page_or_an_error_with_the_path(kind: str, tmp_path: Path):
    messages = []
    for seed in range(150):
        chance, path = random.Random(f"{kind} {seed}"), tmp_path / "log.jsonl"
        path.write_bytes(damaged(text_of(LINES), chance) if kind == "bytes" else text_of(changed(LINES, chance)))
        try:
            fp.runs.report(path, out=tmp_path / "report.html")
        except fp.MlxfpError as error:
            messages.append(str(error))
    assert len(messages) > 20
    assert all("log.jsonl" in message for message in messages)


@pytest.mark.parametrize("text", ['{"a":' * 100_000, "[" * 100_000, "null", '{"spec": ' + "9" * 5000 + "}"])
def test_e17_a_nested_recipe_is_an_error_with_the_path(text: str, tmp_path: Path):
    (tmp_path / "recipe.json").write_text(text)
    with pytest.raises(fp.MlxfpError, match=r"recipe\.json"):
        fp.kaggle.load_estimator(tmp_path)


@pytest.mark.parametrize("number", ["9" * 5000, "-" + "9" * 5000, "0x" + "f" * 5000, "0o" + "7" * 6000])
def test_e17_an_integer_of_thousands_of_digits_is_an_error_with_the_path(number: str, tmp_path: Path):
    (tmp_path / "run.yaml").write_text(f"training:\n  seed: {number}\n")
    with pytest.raises(fp.errors.ConfigError, match=r"run\.yaml"):
        fp.runs.load_config(tmp_path / "run.yaml")


@pytest.mark.parametrize(
    "text",
    [
        "{% if messages %}" * 400 + "x" + "{% endif %}" * 400,
        "{% if 1 == 2 %}" + "{% elif 1 == 3 %}" * 3000 + "{% endif %}",
        "{{" + "(" * 3000 + "1" + ")" * 3000 + "}}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    ],
)
def test_e17_a_deeply_nested_template_is_an_error(text: str):
    with pytest.raises(fp.errors.DataError, match="chat template"):
        fp.ChatTemplate(text).render([{"role": "user", "content": "a"}])
