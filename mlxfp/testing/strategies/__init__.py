"""hypothesis strategies that draw inputs with the oddities of real ones. Each is a public plural noun."""

from mlxfp.testing.strategies.composing import pipelines, sources, stages
from mlxfp.testing.strategies.tabular import examples, rechunkings, schemas, tables, templates, token_lists
from mlxfp.testing.strategies.tokenizing import tokenizers
from mlxfp.testing.strategies.training import batches, train_states

__all__ = [
    "batches",
    "examples",
    "pipelines",
    "rechunkings",
    "schemas",
    "sources",
    "stages",
    "tables",
    "templates",
    "token_lists",
    "tokenizers",
    "train_states",
]
