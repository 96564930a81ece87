"""Where a model and a loss keep state besides buffers: found by walking their attributes.

    tensors, arrays     in attributes of modules, of a callable loss, of what a function closes over,
                        in its default arguments and in the globals that it names
    holders             what is bound anew: attributes, entries of lists and dicts, closure cells
    modules             that only the loss knows, such as a criterion or a teacher

The walk is bounded in depth and number. It does not enter objects of PyTorch or of Python's own
library, slots of classes, and long lists.
"""

import functools
import operator
import sys
import types
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .randomness import GENERATORS

_DEEPEST = 4  # steps from a module of the model, or from the loss
_MOST = 20_000  # objects
_LONGEST = 10_000  # entries of a list whose changes are seen
_SHORT = 256  # entries of a list that are looked at one by one
_NO_STATE = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type,
    types.ModuleType,
    range,
    slice,
)
_FOREIGN = {"torch", "numpy", *sys.stdlib_module_names} - {"__main__"}
# What every module has: hooks, parameters, buffers, children, the mode.
_OF_EVERY_MODULE = frozenset(vars(nn.Module()))

Values = Mapping[Any, Any] | list[Any]


class Holder:
    """A place whose contents are bound anew: how to read it, and how to put back what was read."""

    def __init__(self, read: Callable[[], Values], write: Callable[[Any], Any]) -> None:
        self.read, self._write = read, write

    def holds(self, values: Values) -> bool:
        """Whether it still has these very objects."""
        now = self.read()
        if len(now) != len(values):
            return False
        if isinstance(now, Mapping) and isinstance(values, Mapping):
            return now.keys() == values.keys() and all(now[key] is values[key] for key in now)
        return all(map(operator.is_, now, values))

    def generators(self) -> list[Any]:
        """The generators of random numbers that it has now."""
        now = self.read()
        values = now.values() if isinstance(now, Mapping) else now
        return [x for x in values if type(x) in GENERATORS]

    def put_back(self, values: Values) -> None:
        """Give it what it had when it was read."""
        if not self.holds(values):
            self._write(values)


class Walk:
    """All places of state that a model of these modules, and a loss, lead to."""

    def __init__(self, modules: Sequence[nn.Module], loss: Any) -> None:
        self.tensors: list[Tensor] = []
        self.arrays: list[np.ndarray[Any, Any]] = []
        self.holders: list[Holder] = []
        self.modules: list[nn.Module] = []
        self.generators: list[Any] = []
        self._seen = {id(module) for module in modules}
        self._queue: deque[tuple[Any, int]] = deque()
        for module in modules:
            self._open_attributes(module.__dict__, _OF_EVERY_MODULE, 0)
        self._queue.append((loss, 0))
        alive: list[Any] = []  # no id is given to another object meanwhile
        while self._queue and len(self._seen) < _MOST:
            x, depth = self._queue.popleft()
            if not isinstance(x, _NO_STATE) and id(x) not in self._seen:
                self._seen.add(id(x))
                alive.append(x)
                self._enter(x, depth)

    def _enter(self, x: Any, depth: int) -> None:
        if isinstance(x, Tensor):
            if type(x) in (Tensor, nn.Parameter) and _has_values(x):
                self.tensors.append(x)
        elif isinstance(x, np.ndarray):
            self.arrays.append(x)
        elif type(x) in GENERATORS:
            self.generators.append(x)
        elif depth < _DEEPEST:
            self._open(x, depth)

    def _open(self, x: Any, depth: int) -> None:
        if isinstance(x, nn.Module):
            self.modules.append(x)
            self._open_attributes(x.__dict__, _OF_EVERY_MODULE, depth)
            self._follow(x._parameters.values(), depth)
            self._follow(x._modules.values(), depth - 1)  # as deep as its parent
        elif isinstance(x, list | deque | dict | set):
            self._open_container(x, depth)
        elif isinstance(x, tuple):
            self._follow(x[:_SHORT], depth)
        elif isinstance(x, types.FunctionType):
            self._open_function(x, depth)
        elif isinstance(x, types.MethodType):
            self._follow((x.__self__, x.__func__), depth - 1)
        elif isinstance(x, functools.partial):
            self._follow((x.func, x.args, x.keywords), depth)
        elif _package(type(x)) not in _FOREIGN and hasattr(x, "__dict__"):
            self._open_attributes(vars(x), frozenset(), depth)
            for kind in type(x).__mro__:
                if _package(kind) not in _FOREIGN:
                    self._follow((v for v in vars(kind).values() if not callable(v)), depth)

    def _open_attributes(self, names: dict[str, Any], skipped: frozenset[str], depth: int) -> None:
        def read() -> Mapping[str, Any]:
            return {key: value for key, value in names.items() if key not in skipped}

        def write(values: dict[str, Any]) -> None:
            for key in names.keys() - values.keys() - skipped:
                del names[key]
            names.update(values)

        self.holders.append(Holder(read, write))
        self._follow(read().values(), depth)

    def _open_container(self, x: Any, depth: int) -> None:
        mapping = isinstance(x, dict)

        def write(values: Any) -> None:
            x.clear()
            x.update(values) if isinstance(x, dict | set) else x.extend(values)

        if len(x) <= _LONGEST:
            self.holders.append(Holder(lambda: dict(x) if mapping else list(x), write))
        if len(x) <= _SHORT:
            self._follow(x.values() if mapping else x, depth)

    def _open_function(self, function: types.FunctionType, depth: int) -> None:
        if _package(function) in _FOREIGN:
            return
        for cell in function.__closure__ or ():
            contents = functools.partial(_contents, cell)
            self.holders.append(Holder(contents, functools.partial(_fill, cell)))
            self._follow(contents(), depth)
        self._follow(function.__defaults__ or (), depth)
        self._follow((function.__kwdefaults__ or {}).values(), depth)
        self._follow(vars(function).values(), depth)
        outside = function.__globals__
        names = [name for name in function.__code__.co_names if name in outside]
        if names:
            self.holders.append(
                Holder(lambda: {name: outside.get(name) for name in names}, outside.update)
            )
            self._follow((outside[name] for name in names), depth)

    def _follow(self, values: Iterable[Any], depth: int) -> None:
        self._queue.extend((value, depth + 1) for value in values)


def _has_values(x: Tensor) -> bool:
    """Whether it is dense memory that is written as such: no result of a graph, no placeholder."""
    dense = x.layout == torch.strided and not (x.is_meta or x.is_quantized)
    return dense and x.grad_fn is None and not x.is_inference()


def _package(x: Any) -> str:
    return (getattr(x, "__module__", None) or "").partition(".")[0]


def _contents(cell: types.CellType) -> list[Any]:
    try:
        return [cell.cell_contents]
    except ValueError:  # nothing is in it yet
        return []


def _fill(cell: types.CellType, values: list[Any]) -> None:
    if values:
        cell.cell_contents = values[0]
