"""Models: `mlx.nn` modules with frozen configs, usable without the rest of mlxfp."""

from mlxfp.models.adapters import LoRALinear, load_adapters, lora, merge_adapters, save_adapters
from mlxfp.models.banded import call_packed
from mlxfp.models.bert import Bert, BertConfig
from mlxfp.models.catalogue import MODELS, configure, create, with_dropout
from mlxfp.models.convolutional.convnet import CONVNET_SIZES, ConvNet, ConvNetConfig
from mlxfp.models.convolutional.text_cnn import TextCNN, TextCNNConfig
from mlxfp.models.decoder import Cache, Decoder, DecoderConfig
from mlxfp.models.encoder import Encoder, EncoderConfig
from mlxfp.models.formats import Architecture
from mlxfp.models.generating import generate
from mlxfp.models.heads import HEADS, CausalLM, Classifier, MaskedLM, Regressor, TokenClassifier
from mlxfp.models.layers import Dropout
from mlxfp.models.modernbert import ModernBert, ModernBertConfig
from mlxfp.models.numeric_features import WithNumbers
from mlxfp.models.tables.catalogue import TABLE_MODELS, GroupedRates, QuickTraining, TableModel, create_table_model, predict_table
from mlxfp.models.tables.columns import CATEGORIES, NUMBERS, CategoryColumn, NumberColumn, TableColumns, TextColumn, fit_columns
from mlxfp.models.tables.embeddings import PeriodicEmbedding, PiecewiseLinearEmbedding
from mlxfp.models.tables.realmlp import FadingDropout, MixedActivation, NTKLinear, RealMLP, RealMLPConfig
from mlxfp.models.tables.tabm import TabM, TabMConfig
from mlxfp.models.tables.targets import TableTarget
from mlxfp.models.weights import load, load_body, save
from mlxfp.text.word_counts import WordCounts, fit_word_counts

__all__ = [
    "CATEGORIES",
    "CONVNET_SIZES",
    "HEADS",
    "MODELS",
    "NUMBERS",
    "TABLE_MODELS",
    "Architecture",
    "Bert",
    "BertConfig",
    "Cache",
    "CategoryColumn",
    "CausalLM",
    "Classifier",
    "ConvNet",
    "ConvNetConfig",
    "Decoder",
    "DecoderConfig",
    "Dropout",
    "Encoder",
    "EncoderConfig",
    "FadingDropout",
    "GroupedRates",
    "LoRALinear",
    "MaskedLM",
    "MixedActivation",
    "ModernBert",
    "ModernBertConfig",
    "NTKLinear",
    "NumberColumn",
    "PeriodicEmbedding",
    "PiecewiseLinearEmbedding",
    "QuickTraining",
    "RealMLP",
    "RealMLPConfig",
    "Regressor",
    "TabM",
    "TabMConfig",
    "TableColumns",
    "TableModel",
    "TableTarget",
    "TextCNN",
    "TextCNNConfig",
    "TextColumn",
    "TokenClassifier",
    "WithNumbers",
    "WordCounts",
    "call_packed",
    "configure",
    "create",
    "create_table_model",
    "fit_columns",
    "fit_word_counts",
    "generate",
    "load",
    "load_adapters",
    "load_body",
    "lora",
    "merge_adapters",
    "predict_table",
    "save",
    "save_adapters",
    "with_dropout",
]


def __dir__() -> list[str]:
    return __all__
