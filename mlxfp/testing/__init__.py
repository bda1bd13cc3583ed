"""Laws for checking your own sources, stages and collators, and hypothesis strategies that draw their inputs. Requires hypothesis.

- `parametrize_with_laws`: one pytest test per law of your parts.
- `laws`: functions that raise `AssertionError` with the smallest failing case; `laws.check` runs all laws of a value.
- `strategies`: hypothesis strategies for tables, examples, stages and whole pipelines.
- `audit`: checks of any data loader for determinism, permutation, workers and resuming.
- `probing`: a source with given chunks and a log of the chunks read.
- `comparing`: exact comparison of pipeline outputs.
"""

from mlxfp.support.optional import optional

optional("hypothesis", extra="testing", needed_by="mlxfp.testing")

from mlxfp.testing import audit, comparing, laws, probing, strategies  # noqa: E402  # these modules import hypothesis
from mlxfp.testing.parametrizing import parametrize_with_laws  # noqa: E402  # imports hypothesis

__all__ = ["audit", "comparing", "laws", "parametrize_with_laws", "probing", "strategies"]


def __dir__() -> list[str]:
    return __all__
