"""Decoding the files of images, in one mode."""

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

    The other stages of this family decode files to RGB by themselves, so this one is needed for grey images, and to look at pixels.

    The column holds files as `binary` or in a field `bytes`, as in Hugging Face datasets, or tensors uint8 [H, W] or [H, W, C]. Files are
    shown as a browser shows them: upright as their EXIF data say, what is transparent over white, 16 bits as the upper 8, the first picture
    of several; colour profiles are ignored. Grey is ITU-R BT.601 luma, as in Pillow. Tensors stay tensors; images from files may differ in
    size, so a row is `{"rgb": bytes, "height": int, "width": int}` until a stage gives all images one size. Neighbouring stages of
    this family run image after image, and no such column is made between them.

    Needs Pillow (extra `vision`). Raises `SchemaError` for a column of another type, and `DataError` naming the row and its file for one
    that is damaged or has more than `PIL.Image.MAX_IMAGE_PIXELS` pixels.

    >>> import mlxfp as fp
    >>> import numpy as np
    >>> white = fp.from_table({"image": np.full((1, 2, 2, 3), 255, np.uint8)})
    >>> fp.pipe(white, fp.images.decode(mode="grey"))[0]["image"].shape
    (2, 2, 1)

    See also: `read_images`, `resize`, `random_resized_crop`; `collators.vision`, which normalises the tensors.
    """
    check_choice(tuple(PILLOW_MODES), mode=mode)
    check_text(image=image)
    pillow("images.decode")  # raise now, and not at the first row, if Pillow is missing
    return _Decode(mode, image)


@frozen(repr=False)
class _Decode(ImageStage):
    mode: Mode = "rgb"
    image: str = "image"

    def kind(self, kind: ImageKind) -> ImageKind:
        return ImageKind(self.mode, kind.size)

    def edit(self, pixels: Pixels, drawn: Drawn) -> Pixels:
        return pixels if pixels.shape[2] == CHANNELS[self.mode] else in_mode(pixels, self.mode)
