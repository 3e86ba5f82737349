"""SVG as PNG and as an animated GIF, by libraries that need nothing of the system (extra ``show``)."""

from __future__ import annotations

import io
import itertools
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL import Image

COLOURS = 256
BETWEEN = 2
"""Pictures that fade from one step into the next."""
FADE_MS = 70


def require_libraries() -> None:
    """See that the libraries are there.

    Raises:
        ValueError: they are not; the message says how to install them, and what goes without.
    """
    try:
        import PIL
        import resvg_py
    except ModuleNotFoundError as error:
        raise ValueError(
            f"a PNG or GIF needs the module {error.name!r}: pip install 'genpolicy[show]', or write an .svg"
        ) from error
    del PIL, resvg_py


def png(svg: str, width: int) -> bytes:
    """A picture of so many pixels' width."""
    import resvg_py

    with tempfile.TemporaryDirectory() as folder:
        font = Path(folder) / "fallback.ttf"
        font.write_bytes(_fallback_font())
        return bytes(
            resvg_py.svg_to_bytes(svg_string=svg, width=width, font_files=[str(font)], sans_serif_family="Aileron")
        )


def gif(svgs: Iterable[str], width: int, frame_ms: int, hold_ms: int) -> bytes:
    """An animation that fades from picture to picture, holds the last one, and begins again.

    Args:
        svgs: Pictures of one size, at least one.
        width: In pixels.
        frame_ms: How long a picture stands before it fades.
        hold_ms: How long the last one stands.
    """
    from PIL import Image

    stills = [Image.open(io.BytesIO(png(svg, width))).convert("RGB") for svg in svgs]
    images, durations = [stills[0]], [frame_ms]
    for before, after in itertools.pairwise(stills):
        images += [Image.blend(before, after, (i + 1) / (BETWEEN + 1)) for i in range(BETWEEN)]
        images.append(after)
        durations += [FADE_MS] * BETWEEN + [frame_ms]
    durations[-1] = hold_ms
    # One palette for all, of first, middle and last picture, else flat colours flicker.
    sample = Image.new("RGB", (stills[0].width, 3 * stills[0].height))
    for i, still in enumerate((stills[0], stills[len(stills) // 2], stills[-1])):
        sample.paste(still, (0, i * still.height))
    palette = _palette(sample)
    return _encoded([_mapped(image, palette) for image in images], durations)


def _palette(sample: Image.Image) -> NDArray[np.int64]:
    """[C, 3] at most 256 colours for all pictures: the most frequent ones as they are, the others by octree.

    A frequent colour is a flat one (squares, arrows, marks); cutting by the median alone turns rare red into violet.
    """
    from PIL import Image

    counted = sample.getcolors(sample.width * sample.height) or []
    frequent = sorted(counted, key=lambda each: -each[0])[: COLOURS // 2]
    flat = [colour for _, colour in frequent if isinstance(colour, tuple)]
    rest = sample.quantize(COLOURS - len(flat), method=Image.Quantize.FASTOCTREE).getpalette() or []
    return np.concatenate([np.array(flat).reshape(-1, 3), np.array(rest).reshape(-1, 3)]).astype(np.int64)


def _mapped(image: Image.Image, palette: NDArray[np.int64]) -> Image.Image:
    """The picture in the nearest colours of a palette; Pillow's own mapping is off by up to four levels."""
    from PIL import Image

    pixels = np.asarray(image, np.int64)
    packed = (pixels[..., 0] << 16) + (pixels[..., 1] << 8) + pixels[..., 2]
    colours, which = np.unique(packed, return_inverse=True)
    channels = np.stack([colours >> 16, colours >> 8 & 255, colours & 255], axis=1)
    nearest = np.empty(len(colours), np.uint8)
    for start in range(0, len(colours), 4096):  # a part at a time: a picture can have 100,000 colours
        apart = ((channels[start : start + 4096, None] - palette) ** 2).sum(-1)
        nearest[start : start + 4096] = apart.argmin(1)
    flat = Image.fromarray(nearest[which].reshape(packed.shape), "P")
    flat.putpalette(palette.astype(np.uint8).tobytes())
    return flat


def _encoded(images: Sequence[Image.Image], durations: Sequence[int]) -> bytes:
    out = io.BytesIO()
    options: dict[str, Any] = {"duration": list(durations), "loop": 0, "optimize": True, "disposal": 1}
    images[0].save(out, "GIF", save_all=True, append_images=images[1:], **options)
    return out.getvalue()


def _fallback_font() -> bytes:
    """Pillow's own Latin font (Aileron, CC0), so that there is text where the system has no fonts."""
    from PIL import ImageFont

    return bytes(getattr(ImageFont.load_default(16), "font_bytes", b""))
