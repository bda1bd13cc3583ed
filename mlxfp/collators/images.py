"""Vision collator: from a group of images to a normalized array."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np
from attrs import field, frozen

from mlxfp.collators.columns import (
    Arrays,
    Batch,
    Numbers,
    Prepared,
    as_view,
    column_of,
    fixed_numbers,
    names_of,
    unnamed,
)
from mlxfp.collators.cutting import with_carried
from mlxfp.collators.labels import Classes, LabelKind, as_labels, check_label, labels_of
from mlxfp.collators.stacking import Stacking
from mlxfp.core.chunks import Example, Schema
from mlxfp.core.examples import Examples
from mlxfp.core.row_names import PATH
from mlxfp.data.images.columns import encoded_in, mode_of
from mlxfp.data.images.pixels import CHANNELS, Mode, Pixels, Size, all_resized, in_mode, pillow
from mlxfp.data.images.resizing import as_size
from mlxfp.data.images.stacking import Stacked
from mlxfp.support.arrow_types import is_tensor
from mlxfp.support.checks import as_strings, check_choice, check_text, check_types, explain_call
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, DataError, SchemaError
from mlxfp.support.registries import Registry


def _floats(values: Sequence[float]) -> tuple[float, ...]:
    return tuple(map(float, values))


@frozen
class Normalization:
    """Mean and standard deviation of each channel, for images with values from 0 to 1.

    >>> Normalization(mean=[0.5], std=[0.25])
    Normalization(mean=(0.5,), std=(0.25,))
    """

    mean: tuple[float, ...] = field(converter=_floats)
    std: tuple[float, ...] = field(converter=_floats)

    def __attrs_post_init__(self) -> None:
        if len(self.mean) != len(self.std) or len(self.mean) not in (1, 3):
            raise ArgumentError(f"Images have 1 or 3 channels, got {len(self.mean)} means and {len(self.std)} standard deviations.")
        if not all(mean <= 1 for mean in self.mean):
            raise ArgumentError(
                f"Every mean must be at most 1, because pixels have values from 0 to 1, got mean={self.mean}. If mean and std are for "
                "pixels with values from 0 to 255, divide both by 255."
            )
        if not all(std > 0 for std in self.std):
            raise ArgumentError(f"Every std must be above 0, got std={self.std}. Write 1.0 for a channel whose pixels are all equal.")


# Means and standard deviations. ImageNet: the same numbers as in torchvision. CIFAR-10 and MNIST: computed from all training images.
NORMALIZATIONS: Registry[Normalization] = Registry(
    "normalization",
    {
        "imagenet": Normalization((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        "cifar10": Normalization((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
        "mnist": Normalization((0.1307,), (0.3081,)),
    },
)


@explain_call
def vision(  # noqa: PLR0913  # keyword-only, with defaults
    *,
    image: str = "image",
    normalization: Normalization | None = None,
    mode: Mode | None = None,
    size: tuple[int, int] | None = None,
    label: str | None = None,
    label_kind: LabelKind = "class",
    classes: int | Sequence[str] | None = None,
    carry: Sequence[str] = (),
) -> "_Vision":
    """Return the collator for images.

    Accepted values of the column `image`:

    - tensors uint8, or floats from 0 to 1, [H, W] or [H, W, C] with C = 1 or 3;
    - results of the stages of `fp.images`, with images of different sizes;
    - encoded files such as JPEG and PNG, as `binary` or as a struct with the field `bytes` (as in Hugging Face datasets). The collator
      decodes the files like `images.decode` (extra `vision`).

    The batch contains `images`, float32[B, H, W, C], in the axis order of MLX convolutions. `labels` and `carry` work as in `text`.

    On the device, MLX scales uint8 values to 0 to 1. Floats stay unchanged. `normalization` then subtracts the mean and divides
    by the standard deviation of each channel. `mode` converts all images to RGB or grey, like `images.decode`. `size`, (height, width),
    resizes all images, like `images.resize`. To do this work in the workers of `prefetch`, use these stages instead of `mode` and `size`.

    Raises `DataError` with the row and the file for a file that cannot be decoded or has more than `PIL.Image.MAX_IMAGE_PIXELS` pixels, and
    for images of different sizes or channels.

    >>> collator = vision(normalization=NORMALIZATIONS["mnist"], label="digit")
    >>> batch = collator([{"image": np.zeros((28, 28), np.uint8), "digit": 7}])
    >>> batch["images"].shape, round(batch["images"][0, 0, 0, 0].item(), 4), batch["labels"].tolist()
    ((1, 28, 28, 1), -0.4242, [7])

    See also: `NORMALIZATIONS`, the constants of ImageNet, CIFAR-10 and MNIST; `Normalization`, for your own.
    """
    check_text(image=image)
    if isinstance(normalization, str):
        check_choice(NORMALIZATIONS, normalization=normalization)
        raise ArgumentTypeError(
            f"normalization must be a Normalization, got {normalization!r}. Write fp.collators.NORMALIZATIONS[{normalization!r}]."
        )
    check_types((Normalization, type(None)), normalization=normalization)
    if mode is not None:
        check_choice(("rgb", "grey"), mode=mode)
        channels = CHANNELS[mode]
        if normalization is not None and len(normalization.mean) != channels:
            raise ArgumentError(
                f"mode={mode!r} gives images with {channels} channels, but {normalization} is for {len(normalization.mean)} channels. "
                "Choose another normalization."
            )
    named = check_label(label, label_kind, classes)
    if size is not None:
        size = as_size(size)
        pillow(_NAME)  # If Pillow is missing, raise the error now, not at the first batch.
    return _Vision(image, normalization, mode, size, label, label_kind, named, as_strings("carry", carry))


@frozen(repr=False)
class _Vision(Stacking):
    image: str = "image"
    normalization: Normalization | None = None
    mode: Mode | None = None
    size: Size | None = None
    label: str | None = None
    label_kind: LabelKind = "class"
    classes: Classes = None
    carry: tuple[str, ...] = ()
    optional_columns = (PATH,)

    @property
    def uses(self) -> tuple[str, ...]:
        return self.image, *names_of(self.label), *self.carry, PATH

    def __call__(self, examples: Sequence[Example]) -> dict[str, Any]:
        view = as_view(examples)
        batch = {"images": mx.array(self._checked(self._pixels(view)))}
        if self.label is not None:
            batch["labels"] = mx.array(labels_of(view, self.label, self.label_kind, self.classes, _NAME))
        return with_carried(self.finished(batch), view, self.carry, _NAME)

    @property
    def _stacked(self) -> Stacked:
        return Stacked(self.image, self.mode, self.size, _NAME)

    def prepared(self, schema: Schema) -> Prepared | None:
        return None if is_tensor(schema.field(self.image).type) else Prepared((self.image,), (self._stacked,), self)

    def arrays(self, schema: Schema) -> Arrays | None:
        kinds = {name: schema.field(name).type for name in {self.image, *names_of(self.label), *self.carry} & {*schema.names}}
        converters: dict[str, Any] = {name: (name, fixed_numbers(kind)) for name, kind in kinds.items()}
        if not is_tensor(kinds.get(self.image)) or not all(make for _, make in converters.values()):
            return None
        arrays: dict[str, Any] = {"images": (self.image, partial(self._images, tuple(kinds[self.image].shape)))}
        if self.label is not None:
            arrays["labels"] = (self.label, partial(self._labels, converters[self.label][1]))
        return arrays | {name: converters[name] for name in self.carry}

    def _images(self, shape: tuple[int, ...], values: Numbers) -> Numbers:
        return self._checked(self._prepared(values.reshape(len(values), *shape)))

    def _labels(self, make: Any, values: Numbers) -> Numbers:
        return as_labels(make(values), self.label_kind, self.classes, unnamed)

    def _prepared(self, tensors: Pixels) -> Pixels:
        images = in_mode(_four_axes(tensors, self.image), self.mode)
        return images if self.size is None else all_resized(images, self.size, _NAME)

    def _pixels(self, view: Examples) -> Pixels:
        """Return the images as uint8 or float [B, H, W, C], all of the same size."""
        column = column_of(view, self.image, _NAME)
        if is_tensor(column.type):
            return self._prepared(column.to_numpy_ndarray())
        if not (encoded_in(column.type) or mode_of(column.type)):
            raise SchemaError(
                f"{_NAME}: column {self.image!r} must hold tensors uint8 or float [H, W] or [H, W, C], or encoded images as binary, "
                f"got {column.type}. NumPy arrays of equal shape become tensors in from_examples and from_table."
            )
        return self._stacked.pixels(view.chunk)

    def _checked(self, images: Pixels) -> Pixels:
        if self.normalization is not None and len(self.normalization.mean) != images.shape[3]:
            wanted = len(self.normalization.mean)
            mode = "grey" if wanted == 1 else "rgb"
            raise DataError(
                f"{_NAME}: the images in column {self.image!r} have {images.shape[3]} channels, but {self.normalization} is for {wanted}. "
                f'Choose another normalization, or give mode="{mode}".'
            )
        return images

    def finished(self, batch: Batch) -> Batch:
        """Convert pixels to floats on the device. The transfer of uint8 pixels takes a quarter of the bytes of float32 pixels."""
        images = batch["images"]
        count, height, width, channels = images.shape
        full = 255 if images.dtype == mx.uint8 else 1
        # Width and channels become one axis, because MLX is slow for arrays with a short last axis, such as 3 channels.
        rows = images.reshape(count * height, width * channels).astype(mx.float32)
        if self.normalization is None:
            rows = rows / full
        else:
            mean, std = np.array(self.normalization.mean), np.array(self.normalization.std)
            rows = rows * _along(1 / (full * std), width) - _along(mean / std, width)
        batch["images"] = rows.reshape(images.shape)
        mx.eval(batch["images"])
        return batch


_NAME = "collators.vision"


def _along(values: Any, width: int) -> mx.array:
    """Repeat `values`, one value per channel, for each of the `width` pixels in an image row."""
    return mx.array(np.tile(values, width).astype(np.float32))


def _four_axes(pixels: Pixels, name: str) -> Pixels:
    """Return tensors as [B, H, W, C]. Raises `SchemaError` for other shapes and types."""
    images = pixels[..., None] if pixels.ndim == 3 else pixels
    if images.ndim != 4 or images.shape[3] not in (1, 3):
        raise SchemaError(
            f"{_NAME}: an image in column {name!r} must be [H, W] or [H, W, C] with 1 or 3 channels, got {list(pixels.shape[1:])}. "
            "Channels must be the last axis: move a first axis with map and np.moveaxis(image, 0, -1)."
        )
    if images.dtype != np.uint8 and images.dtype.kind != "f":
        raise SchemaError(f"{_NAME}: an image in column {name!r} must be uint8 or float, got {images.dtype}.")
    if images.dtype == np.uint8:
        return images
    if images.size and (largest := float(images.max())) > _BRIGHT:
        raise DataError(
            f"{_NAME}: float pixels are numbers from 0 to 1, got {largest:g} in column {name!r}. Divide the pixels before collate: "
            f"fp.map(lambda row: {{**row, {name!r}: row[{name!r}] / 255}})."
        )
    return images.astype(np.float32, copy=False)


_BRIGHT = 2.0  # Float pixels should be at most 1. Augmentation may exceed 1 slightly, but a maximum above 2 means values from 0 to 255.
