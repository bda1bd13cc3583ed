"""Models: `mlx.nn` modules with frozen configs, one file for each architecture. They work without the rest of this library too."""

from mlxfp.models.adapters import save_adapters
from mlxfp.models.bert import Bert, BertConfig
from mlxfp.models.catalogue import MODELS, configure, create
from mlxfp.models.convnet import ConvNet, ConvNetConfig
from mlxfp.models.decoder import Cache, Decoder, DecoderConfig
from mlxfp.models.describing import describe
from mlxfp.models.encoder import Encoder, EncoderConfig
from mlxfp.models.formats import Architecture
from mlxfp.models.generating import generate
from mlxfp.models.heads import HEADS, CausalLM, Classifier, MaskedLM, Regressor, TokenClassifier
from mlxfp.models.modernbert import ModernBert, ModernBertConfig
from mlxfp.models.numeric_features import WithNumbers
from mlxfp.models.weights import load, load_body, save

__all__ = [
    "HEADS",
    "MODELS",
    "Architecture",
    "Bert",
    "BertConfig",
    "Cache",
    "CausalLM",
    "Classifier",
    "ConvNet",
    "ConvNetConfig",
    "Decoder",
    "DecoderConfig",
    "Encoder",
    "EncoderConfig",
    "MaskedLM",
    "ModernBert",
    "ModernBertConfig",
    "Regressor",
    "TokenClassifier",
    "WithNumbers",
    "configure",
    "create",
    "describe",
    "generate",
    "load",
    "load_body",
    "save",
    "save_adapters",
]


def __dir__() -> list[str]:
    return __all__
