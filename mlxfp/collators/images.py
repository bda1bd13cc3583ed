"""The vision collator: a group of images becomes one normalised array."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np
import pyarrow as pa
from attrs import field, frozen
from numpy.typing import NDArray

from mlxfp.collators.built_in import BuiltIn, Setting, labelled
from mlxfp.collators.columns import (
    PATH,
    Collator,
    Numbers,
    as_labels,
    as_view,
    at_place,
    column_of,
    fixed_numbers,
    labels_of,
    names_of,
    unnamed,
)
from mlxfp.collators.cutting import carried
from mlxfp.collators.image_files import PILLOW_MODES, Mode, Pixels, UnusableImageError, decode, pillow
from mlxfp.collators.stacking import Arrays, Stacking
from mlxfp.collators.texts import LabelKind, check_label
from mlxfp.core.arrow.types import is_binary, is_tensor
from mlxfp.core.checks import as_strings, check_choice, check_positive, check_text, check_types, explain_call
from mlxfp.core.chunks import Example, Schema
from mlxfp.core.errors import ArgumentError, DataError, SchemaError
from mlxfp.core.examples import Examples
from mlxfp.settings.registries import Registry


def _floats(values: Sequence[float]) -> tuple[float, ...]:
    return tuple(map(float, values))


@frozen
class Normalization:
    """The mean and the standard deviation of each channel, for images with values from 0 to 1.

    >>> Normalization(mean=[0.5], std=[0.25])
    Normalization(mean=(0.5,), std=(0.25,))
    """

    mean: tuple[float, ...] = field(converter=_floats)
    std: tuple[float, ...] = field(converter=_floats)

    def __attrs_post_init__(self) -> None:
        if len(self.mean) != len(self.std) or len(self.mean) not in (1, 3):
            raise ArgumentError(f"Images have 1 or 3 channels, got {len(self.mean)} means and {len(self.std)} standard deviations.")
        if min(self.std) <= 0:
            raise ArgumentError(f"Every std must be above 0, got {self.std}. Leave out channels that never change.")


# ImageNet: the values that torchvision's pretrained models use. CIFAR-10 and MNIST: of all pixels of their training images.
NORMALIZATIONS: Registry[Normalization] = Registry(
    "normalization",
    {
        "imagenet": Normalization((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        "cifar10": Normalization((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
        "mnist": Normalization((0.1307,), (0.3081,)),
    },
)


@explain_call
def vision(  # noqa: PLR0913  # all have defaults, and are named
    *,
    image: str = "image",
    normalization: Normalization | None = None,
    mode: Mode | None = None,
    size: tuple[int, int] | None = None,
    label: str | None = None,
    label_kind: LabelKind = "class",
    classes: int | None = None,
    carry: Sequence[str] = (),
) -> Collator:
    """Make the collator for images.

    The column `image` holds tensors uint8 or float [H, W] or [H, W, C] with C = 1 or 3, or files such as JPEG and PNG, as `binary` or in a
    field `bytes`, as in Hugging Face datasets; Pillow decodes them (extra `vision`), and they are turned upright as their EXIF data say.
    The batch holds `images` float32[B, H, W, C], the order of axes of MLX's convolutions; `labels` and the columns in `carry` are as for
    `text`.

    uint8 is scaled to 0 to 1, and floats stay as they are; then `normalization` subtracts the mean and divides by the standard deviation of
    each channel. `mode` converts all images to RGB or to grey (ITU-R BT.601 luma, as Pillow does): files as a browser shows them, what is
    transparent over white, 16 bits as the upper 8, the first picture of several; colour profiles are ignored. `size` is (height, width):
    images are resized with Pillow's bilinear filter, which does not alias. Raises `DataError` for a file that cannot be decoded or has more
    than `PIL.Image.MAX_IMAGE_PIXELS` pixels, and for images of different sizes or channels, naming the row and the file.

    >>> collator = vision(normalization=NORMALIZATIONS["mnist"], label="digit")
    >>> batch = collator([{"image": np.zeros((28, 28), np.uint8), "digit": 7}])
    >>> batch["images"].shape, round(batch["images"][0, 0, 0, 0].item(), 4), batch["labels"].tolist()
    ((1, 28, 28, 1), -0.4242, [7])

    See also: `NORMALIZATIONS`, the constants of ImageNet, CIFAR-10 and MNIST; `Normalization`, for your own.
    """
    check_text(image=image)
    check_types((Normalization, type(None)), normalization=normalization)
    if mode is not None:
        check_choice(("rgb", "grey"), mode=mode)
        channels = len(PILLOW_MODES[mode])
        if normalization is not None and len(normalization.mean) != channels:
            raise ArgumentError(
                f"mode={mode!r} gives images with {channels} channels, and {normalization} is for {len(normalization.mean)}."
            )
    check_label(label, label_kind, classes)
    shape = None if size is None else _height_and_width(size)
    return _Vision(image, normalization, mode, shape, label, label_kind, classes, as_strings("carry", carry))


@frozen(repr=False)
class _Vision(Stacking):
    image: str = "image"
    normalization: Normalization | None = None
    mode: Mode | None = None
    size: tuple[int, int] | None = None
    label: str | None = None
    label_kind: LabelKind = "class"
    classes: int | None = None
    carry: tuple[str, ...] = ()
    optional_columns = (PATH,)

    @property
    def uses(self) -> tuple[str, ...]:
        return self.image, *names_of(self.label), *self.carry, PATH

    def __call__(self, examples: Sequence[Example]) -> dict[str, Any]:
        view = as_view(examples)
        batch = {"images": mx.array(self._normalized(self._pixels(view)))}
        if self.label is not None:
            batch["labels"] = mx.array(labels_of(view, self.label, self.label_kind, self.classes, _NAME))
        return batch | carried(view, self.carry, _NAME)

    def arrays(self, schema: Schema) -> Arrays | None:
        kinds = {name: schema.field(name).type for name in {self.image, *names_of(self.label), *self.carry} & {*schema.names}}
        made: dict[str, Any] = {name: (name, fixed_numbers(kind)) for name, kind in kinds.items()}
        if not is_tensor(kinds.get(self.image)) or not all(make for _, make in made.values()):
            return None
        arrays: dict[str, Any] = {"images": (self.image, partial(self._images, tuple(kinds[self.image].shape)))}
        if self.label is not None:
            arrays["labels"] = (self.label, partial(self._labels, made[self.label][1]))
        return arrays | {name: made[name] for name in self.carry}

    def _images(self, shape: tuple[int, ...], values: Numbers) -> Numbers:
        return self._normalized(self._prepared(values.reshape(len(values), *shape)))

    def _labels(self, make: Any, values: Numbers) -> Numbers:
        return as_labels(make(values), self.label_kind, self.classes, unnamed)

    def _prepared(self, tensors: Pixels) -> Pixels:
        return _resized(_as_mode(_four_axes(tensors, self.image), self.mode), self.size)

    def _pixels(self, view: Examples) -> Pixels:
        """Return the images as uint8 or float [B, H, W, C], all of one size."""
        column = column_of(view, self.image, _NAME)
        if pa.types.is_struct(column.type) and column.type.get_field_index("bytes") >= 0:  # as in Hugging Face datasets
            column = column.field("bytes")
        if is_tensor(column.type):
            return self._prepared(column.to_numpy_ndarray())
        if is_binary(column.type):
            images = [self._decoded(data, view, place) for place, data in enumerate(column.to_pylist())]
            other = next((place for place, image in enumerate(images) if image.shape != images[0].shape), None)
            if other is not None:
                raise DataError(
                    f"{at_place(view, self.image, other, _NAME)} has the shape {images[other].shape}, the first one of the group "
                    f"{images[0].shape}. Give size=(height, width) for different sizes, mode for different channels."
                )
            return np.stack(images)
        raise SchemaError(
            f"{_NAME}: column {self.image!r} must hold tensors uint8 or float [H, W] or [H, W, C], or encoded images as binary, "
            f"got {column.type}. numpy arrays of one shape become tensors in from_examples and from_table."
        )

    def _decoded(self, data: bytes | None, view: Examples, place: int) -> Pixels:
        try:
            pixels = decode(data or b"", self.mode, _NAME)
        except UnusableImageError as error:
            raise DataError(f"{at_place(view, self.image, place, _NAME)} {error}") from error
        resized: Pixels = _resized(pixels[None], self.size)[0]
        return resized

    def _normalized(self, pixels: Pixels) -> NDArray[np.float32]:
        full = 255 if pixels.dtype == np.uint8 else 1
        out: NDArray[np.float32] = pixels.astype(np.float32)
        if self.normalization is None:
            out /= full
            return out
        mean, std = np.array(self.normalization.mean), np.array(self.normalization.std)
        count, height, width, channels = pixels.shape
        if len(mean) != channels:
            raise DataError(
                f"{_NAME}: the images in column {self.image!r} have {channels} channels, and {self.normalization} is for {len(mean)}. "
                f'Choose another normalization, or give mode="{"grey" if len(mean) == 1 else "rgb"}".'
            )
        rows = out.reshape(count * height, width * channels)  # a row of pixels at a time: numpy is slow if the last axis is as short as 3
        rows *= np.tile(1 / (full * std), width).astype(np.float32)
        rows -= np.tile(mean / std, width).astype(np.float32)
        return out


_NAME = "collators.vision"


def _height_and_width(size: Any) -> tuple[int, int]:
    if not isinstance(size, tuple | list) or len(size) != 2:  # a height and a width
        raise ArgumentError(f"size must be (height, width), got {size!r}.")
    check_positive(height=size[0], width=size[1])
    pillow(_NAME)  # raise now, and not at the first batch, if Pillow is missing
    return size[0], size[1]


def _four_axes(pixels: Pixels, name: str) -> Pixels:
    """Return tensors as [B, H, W, C], or raise `SchemaError`."""
    images = pixels[..., None] if pixels.ndim == 3 else pixels
    if images.ndim != 4 or images.shape[3] not in (1, 3):
        raise SchemaError(
            f"{_NAME}: an image in column {name!r} must be [H, W] or [H, W, C] with 1 or 3 channels, got {list(pixels.shape[1:])}. "
            "Channels are the last axis; where they are the first, move them with map and np.moveaxis(image, 0, -1)."
        )
    if images.dtype != np.uint8 and images.dtype.kind != "f":
        raise SchemaError(f"{_NAME}: an image in column {name!r} must be uint8 or float, got {images.dtype}.")
    return images if images.dtype == np.uint8 else images.astype(np.float32, copy=False)


def _as_mode(images: Pixels, mode: Mode | None) -> Pixels:
    """Convert [B, H, W, C] to RGB or grey as Pillow does, for uint8 with the same rounding."""
    channels = images.shape[3]
    if mode == "rgb" and channels == 1:
        return np.repeat(images, 3, axis=3)
    if mode == "grey" and channels == 3:
        whole = images.dtype == np.uint8
        weights = np.array([19595, 38470, 7471], np.uint32) if whole else np.array([0.299, 0.587, 0.114], np.float32)
        red, green, blue = (images[..., place, None] * weight for place, weight in enumerate(weights))
        luma: Pixels = red + green + blue
        return ((luma + np.uint32(0x8000)) >> np.uint32(16)).astype(np.uint8) if whole else luma
    return images


def _resized(images: Pixels, size: tuple[int, int] | None) -> Pixels:
    """Resize [B, H, W, C] to (height, width), each channel by itself."""
    if size is None or images.shape[1:3] == size:
        return images
    own, (height, width) = pillow(_NAME), size
    planes = np.moveaxis(images, 3, 1).reshape(-1, *images.shape[1:3])
    made = np.stack([own.fromarray(plane).resize((width, height), own.Resampling.BILINEAR) for plane in planes])
    resized: Pixels = np.moveaxis(made.reshape(len(images), images.shape[3], height, width), 1, 3)
    return resized


def _for_task(setting: Setting) -> dict[str, Any]:
    return {"image": setting.roles["image"], **setting.label_arguments()}


VISION = BuiltIn("vision", vision, tasks=labelled("vision"), roles={"image": "image", "label": "label"}, arguments=_for_task)
