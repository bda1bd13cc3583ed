"""What the tests of encoding share."""

from collections.abc import Iterator

import pytest

from mlxfp.text.encoding.boundary_rules import find_rule
from mlxfp.text.encoding.encoding import forget_words


@pytest.fixture
def nothing_remembered() -> Iterator[None]:
    """Let no rule or memo of one test reach another."""
    find_rule.cache_clear()
    forget_words()
    yield
    find_rule.cache_clear()
    forget_words()
