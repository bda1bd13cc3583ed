"""Hypothesis strategies for realistic inputs with edge cases. The name of a strategy is the plural of the drawn value, such as `tables`."""

from mlxfp.testing.strategies.composing import pipelines as pipelines
from mlxfp.testing.strategies.composing import sources as sources
from mlxfp.testing.strategies.composing import stages as stages
from mlxfp.testing.strategies.tabular import examples as examples
from mlxfp.testing.strategies.tabular import rechunkings as rechunkings
from mlxfp.testing.strategies.tabular import schemas as schemas
from mlxfp.testing.strategies.tabular import tables as tables
from mlxfp.testing.strategies.tabular import templates as templates
from mlxfp.testing.strategies.tabular import tokenizers as tokenizers
