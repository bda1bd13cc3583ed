"""A plugin of pytest: it marks the tests of laws, and lists at the end which laws of which part are broken.

A line in `conftest.py` loads it: `pytest_plugins = ["mlxfp.testing.pytest_plugin"]`. pytest would load an entry point for all who have
mlxfp installed, and rewrite every `assert` of the package, which changes what laws say.
"""

import sys
from typing import Any

import pytest

_LAWS = "mlxfp.testing.laws.checking"  # where `Law` is, if a test has imported it
_MARK, _KEY = "law", "mlxfp law"


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark."""
    config.addinivalue_line("markers", f"{_MARK}: a law of a part, of mlxfp.testing.parametrize_with_laws; -m law runs these alone")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test of a law, and remember the part, so that its report has it, also from another process."""
    laws: Any = sys.modules.get(_LAWS)
    call = getattr(item, "callspec", None)
    for law in () if laws is None or call is None else call.params.values():
        if isinstance(law, laws.Law):
            item.add_marker(_MARK)
            item.user_properties.append((_KEY, [str(law).removeprefix(f"{law.name} of "), law.name]))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """List the parts whose laws were checked."""
    found: dict[str, dict[str, list[str]]] = {}
    for outcome in ("passed", "failed", "xfailed", "xpassed"):
        for report in terminalreporter.stats.get(outcome, ()):
            for key, value in getattr(report, "user_properties", ()):
                if key == _KEY:
                    held = outcome == "failed" and str(report.longrepr).startswith("[XPASS(strict)]")
                    found.setdefault(value[0], {}).setdefault("xpassed" if held else outcome, []).append(value[1])
    if found:
        terminalreporter.section("laws")
    for part, outcomes in found.items():
        terminalreporter.line(f"{part}: {', '.join(_told(outcomes))}")


def _told(outcomes: dict[str, list[str]]) -> list[str]:
    held = len(outcomes.get("passed", []))
    names = {"broken": "failed", "broken as expected": "xfailed", "held though expected to be broken": "xpassed"}
    said = [f"{name} {', '.join(outcomes[outcome])}" for name, outcome in names.items() if outcome in outcomes]
    return [f"{held} {'law holds' if held == 1 else 'laws hold'}", *said]
