"""The laws of training are public: `mlxfp.testing.laws`."""

from mlxfp.testing.laws import (
    assert_adds_up,
    assert_compiled_equals_eager,
    assert_continues,
    assert_keeps_events,
    assert_pure_step,
    assert_saves,
)
from mlxfp.testing.laws import assert_observes_lazily as assert_lazy

__all__ = [
    "assert_adds_up",
    "assert_compiled_equals_eager",
    "assert_continues",
    "assert_keeps_events",
    "assert_lazy",
    "assert_pure_step",
    "assert_saves",
]
