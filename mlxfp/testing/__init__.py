"""Laws that your own sources, stages and collators can be checked against, and strategies that draw inputs for them. Needs hypothesis.

- `laws`: functions that raise `AssertionError` where a law is broken, showing the smallest case; `laws.check` runs all that apply.
- `strategies`: hypothesis strategies of tables, examples, stages and whole pipelines.
- `audit`: which laws of determinism, permutation, workers and resuming a data loader breaks, ours or another.
- `probing`: a source with exactly the chunks that you give it, which logs what is read.
- `comparing`: exact comparison of anything that comes out of a pipeline.
"""

from mlxfp.core._optional import optional

optional("hypothesis", extra="testing", needed_by="mlxfp.testing")

from mlxfp.testing import audit, comparing, laws, probing, strategies  # noqa: E402  # after the check: they import hypothesis

__all__ = ["audit", "comparing", "laws", "probing", "strategies"]


def __dir__() -> list[str]:
    return __all__
