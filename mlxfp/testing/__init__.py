"""Laws that your own sources, stages and collators can be checked against, and strategies that draw inputs for them. Needs hypothesis.

- `parametrize_with_laws`: a test of pytest for each law of your parts.
- `laws`: functions that raise `AssertionError` where a law is broken, showing the smallest case; `laws.check` runs all that apply.
- `strategies`: hypothesis strategies of tables, examples, stages and whole pipelines.
- `audit`: which laws of determinism, permutation, workers and resuming a data loader breaks, ours or another.
- `probing`: a source with exactly the chunks that you give it, which logs what is read.
- `comparing`: exact comparison of anything that comes out of a pipeline.
"""

from mlxfp.support.optional import optional

optional("hypothesis", extra="testing", needed_by="mlxfp.testing")

from mlxfp.testing import audit, comparing, laws, probing, strategies  # noqa: E402  # after the check: they import hypothesis
from mlxfp.testing.parametrizing import parametrize_with_laws  # noqa: E402  # the same

__all__ = ["audit", "comparing", "laws", "parametrize_with_laws", "probing", "strategies"]


def __dir__() -> list[str]:
    return __all__
