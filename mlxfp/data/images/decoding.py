"""Stage that decodes image files to RGB or grey."""

from collections.abc import Callable

from attrs import frozen

from mlxfp.core.chunks import Example
from mlxfp.core.datasets import Dataset
from mlxfp.data.images.columns import ImageKind
from mlxfp.data.images.editing import Drawn, ImageStage
from mlxfp.data.images.pixels import CHANNELS, PILLOW_MODES, Mode, Pixels, in_mode, pillow
from mlxfp.support.checks import check_choice, check_text, explain_call


@explain_call
def decode(*, mode: Mode = "rgb", image: str = "image") -> Callable[[Dataset[Example]], Dataset[Example]]:
    """Decode files such as JPEG and PNG, and convert all images to RGB or grey, uint8[H, W, C] with C = 3 or 1.

    Other image stages, such as `resize`, decode files to RGB themselves. `decode` is needed for grey images and for looking at pixels.

    The column holds encoded files (`binary`, or a struct with a field `bytes` as in Hugging Face datasets) or tensors uint8 [H, W] or
    [H, W, C]. Files are decoded as in a browser: upright by their EXIF orientation, transparency over white, the upper 8 of 16 bits,
    the first frame of an animation. Colour profiles are ignored. Grey is ITU-R BT.601 luma, as in Pillow.

    Tensors stay tensors. Decoded files have different sizes, so a row holds `{"rgb": bytes, "height": int, "width": int}` until a stage
    gives all images one size. Neighbouring image stages are merged and skip this intermediate column.

    Needs Pillow (extra `vision`). Raises `SchemaError` for a column of another type. Raises `DataError` with the row and file of an
    image that is damaged or has more than `PIL.Image.MAX_IMAGE_PIXELS` pixels.

    >>> import mlxfp as fp
    >>> import numpy as np
    >>> white = fp.from_table({"image": np.full((1, 2, 2, 3), 255, np.uint8)})
    >>> fp.pipe(white, fp.images.decode(mode="grey"))[0]["image"].shape
    (2, 2, 1)

    See also: `read_images`, `resize`, `random_resized_crop`; `collators.vision`, which normalises the tensors.
    """
    check_choice(tuple(PILLOW_MODES), mode=mode)
    check_text(image=image)
    pillow("images.decode")  # raise the error for a missing Pillow now, not when the first row is read
    return _Decode(mode, image)


@frozen(repr=False)
class _Decode(ImageStage):
    mode: Mode = "rgb"
    image: str = "image"

    def kind(self, kind: ImageKind) -> ImageKind:
        return ImageKind(self.mode, kind.size)

    def edit(self, pixels: Pixels, drawn: Drawn) -> Pixels:
        return pixels if pixels.shape[2] == CHANNELS[self.mode] else in_mode(pixels, self.mode)
