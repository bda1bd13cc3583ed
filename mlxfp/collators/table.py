"""The built-in collators. A new one is a file of its own and a name here."""

from mlxfp.collators import causal_lm, combining, images, masked_lm, plain, sequence_to_sequence, texts, waveforms

BUILT_IN = (
    waveforms.AUDIO,
    causal_lm.CAUSAL,
    plain.DEFAULT,
    masked_lm.MASKED,
    combining.MULTIMODAL,
    sequence_to_sequence.SEQ2SEQ,
    texts.TEXT,
    images.VISION,
)
