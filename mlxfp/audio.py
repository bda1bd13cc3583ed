"""Sound: features of waveforms, and stages that crop waveforms. `read_audio` reads the files."""

from mlxfp.data.lengths.cropping import crop_waveforms
from mlxfp.data.sound.features import log_mel
from mlxfp.data.sound.spectrograms import LogMel

__all__ = ["LogMel", "crop_waveforms", "log_mel"]


def __dir__() -> list[str]:
    return __all__
