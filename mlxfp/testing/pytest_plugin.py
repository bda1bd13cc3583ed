"""Pytest plugin that marks law tests, and lists the broken laws of every part after the run.

Load the plugin in `conftest.py`: `pytest_plugins = ["mlxfp.testing.pytest_plugin"]`. The package has no pytest entry point, because every
pytest run with mlxfp installed would then load the plugin and rewrite all `assert` statements of the package. The rewriting would change
the messages of the laws.
"""

import sys
from typing import Any

import pytest

_LAWS = "mlxfp.testing.laws.checking"  # module that defines `Law`; imported only if a test uses laws
_MARK, _KEY = "law", "mlxfp law"


def pytest_configure(config: pytest.Config) -> None:
    """Register the `law` mark."""
    config.addinivalue_line("markers", f"{_MARK}: a law of a part, of mlxfp.testing.parametrize_with_laws; -m law runs these alone")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the test of a law. Add the names of the checked object and of the law to the report, for the summary after the run."""
    laws: Any = sys.modules.get(_LAWS)
    call = getattr(item, "callspec", None)
    for law in () if laws is None or call is None else call.params.values():
        if isinstance(law, laws.Law):
            item.add_marker(_MARK)
            item.user_properties.append((_KEY, [str(law).removeprefix(f"{law.name} of "), law.name]))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the names of the checked objects with their broken laws."""
    outcomes_of_parts: dict[str, dict[str, list[str]]] = {}
    for outcome in ("passed", "failed", "xfailed", "xpassed"):
        for report in terminalreporter.stats.get(outcome, ()):
            for key, value in getattr(report, "user_properties", ()):
                if key == _KEY:
                    unexpected_pass = outcome == "failed" and str(report.longrepr).startswith("[XPASS(strict)]")
                    outcomes_of_parts.setdefault(value[0], {}).setdefault("xpassed" if unexpected_pass else outcome, []).append(value[1])
    if outcomes_of_parts:
        terminalreporter.section("laws")
    for part, outcomes in outcomes_of_parts.items():
        terminalreporter.line(f"{part}: {', '.join(_summary(outcomes))}")


def _summary(outcomes: dict[str, list[str]]) -> list[str]:
    passed = len(outcomes.get("passed", []))
    names = {"broken": "failed", "broken as expected": "xfailed", "unexpectedly kept": "xpassed"}
    problems = [f"{name} {', '.join(outcomes[outcome])}" for name, outcome in names.items() if outcome in outcomes]
    return [f"{passed} {'law holds' if passed == 1 else 'laws hold'}", *problems]
