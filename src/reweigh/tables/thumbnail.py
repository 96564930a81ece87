"""A small copy of an image, as an address that a page can hold in itself."""

import base64
import io
from pathlib import Path

from .images import image_at, open_image

SIDE = 128


def thumbnail(data: Path, name: str, side: int = SIDE) -> str | None:
    """`data:image/...`, decoded and drawn anew; None if it is gone, unreadable, or lies outside `data`."""
    file = image_at(data, name)
    image = None if file is None else open_image(file)
    if image is None:
        return None
    small = image.convert("RGB")
    small.thumbnail((side, side))
    packed = io.BytesIO()
    kind = "png" if small.width < 64 else "jpeg"
    small.save(packed, format=kind, quality=80)
    return f"data:image/{kind};base64," + base64.b64encode(packed.getvalue()).decode()
