"""Laws with which you can check your own sources, stages and collators, and hypothesis strategies that draw inputs. Requires hypothesis.

A law is a property that every stage, source or collator must have, for example that a resumed run gives the remaining items.

- `parametrize_with_laws`: creates one pytest test per law of each of your parts (a part is a source, stage, collator, ...).
- `laws`: functions that raise `AssertionError` with the smallest failing case. `laws.check` checks all laws of a part.
- `strategies`: hypothesis strategies for tables, examples, stages and whole pipelines.
- `audit`: checks of any data loader for determinism, permutation, workers and resuming.
- `probing`: a source that yields given chunks and logs the chunks read.
- `comparing`: exact comparison of pipeline outputs.
"""

from mlxfp.support.optional import optional

optional("hypothesis", extra="testing", needed_by="mlxfp.testing")

from mlxfp.testing import audit, comparing, laws, probing, strategies  # noqa: E402  # these modules import hypothesis
from mlxfp.testing.parametrizing import parametrize_with_laws  # noqa: E402  # imports hypothesis

__all__ = ["audit", "comparing", "laws", "parametrize_with_laws", "probing", "strategies"]


def __dir__() -> list[str]:
    return __all__
