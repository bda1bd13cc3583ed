"""Models: `mlx.nn` modules with frozen configs, one architecture a file. They work outside this library too."""

from mlxfp.models.encoder import Encoder, EncoderConfig
from mlxfp.models.heads import Classifier

__all__ = ["Classifier", "Encoder", "EncoderConfig"]
