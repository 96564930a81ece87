"""The table of back-ends: the only list of them."""

from ...errors import unknown
from .base import Backend
from .double_backward import DoubleBackward
from .finite_difference import FiniteDifference
from .forward_mode import ForwardMode
from .ghost import Ghost, make_ghost

BACKENDS: dict[str, type[Backend]] = {
    kind.name: kind for kind in (Ghost, ForwardMode, DoubleBackward, FiniteDifference)
}
"""In the order of their arithmetic, in which "auto" tries them, but for the exceptions of order.py."""


def require_known(name: str) -> str:
    """Return `name` if it is a back-end or "auto"; else an error with a suggestion."""
    if name != "auto" and name not in BACKENDS:
        raise unknown("back-end", name, ["auto", *BACKENDS])
    return name


def make(name: str, *, epsilon: float | None, one_pass: bool | None) -> Backend:
    """A back-end with nothing remembered yet. epsilon: relative step of finite_difference; one_pass:
    whether ghost may run both batches in one pass."""
    if name == "ghost":
        return make_ghost(one_pass)
    return FiniteDifference(epsilon) if name == "finite_difference" else BACKENDS[name]()
