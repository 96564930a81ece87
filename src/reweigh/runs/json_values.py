"""Dataclasses as JSON and back: the types of the fields say how a value is read.

    as_json(value)            dicts, lists, strings, numbers, booleans and None
    of_json(kind, value)      a `kind` again; raises TypeError or ValueError where it does not fit

A tuple is a JSON list, a dataclass a JSON object, a Path an absolute path as a string.
"""

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from ..errors import unknown

Json = dict[str, Any]
T = TypeVar("T")


def as_json(value: Any) -> Any:
    """`value` as plain JSON; keys in the order of the fields."""
    if is_dataclass(value):
        return {field.name: as_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: as_json(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(entry) for entry in value]
    return str(value.resolve()) if isinstance(value, Path) else value


def of_json(kind: type[T], value: Any, *, others: bool = False) -> T:
    """The dataclass `kind` from a JSON object; fields that are not there keep their default.

    others: keys that are no field are passed over instead of refused.
    """
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} stands where settings are named")
    hints = _hints(kind)
    for name in value:
        if name not in hints and not others:
            raise unknown("setting", name, sorted(hints))
    return kind(
        **{name: _value(hints[name], v, name, others) for name, v in value.items() if name in hints}
    )


def differences(theirs: T, mine: T) -> dict[str, tuple[Any, Any]]:
    """The fields in which two dataclasses differ as JSON: name -> (theirs, mine)."""
    there, here = as_json(theirs), as_json(mine)
    return {name: (there[name], here[name]) for name in here if there[name] != here[name]}


def _hints(kind: Any) -> dict[str, Any]:
    """The type of each field; class variables and properties are no fields."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


def _value(kind: Any, value: Any, name: str, others: bool) -> Any:
    """One value of the type `kind`; `name` is for the error."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any or (value is None and types.NoneType in inner):
        return value
    if isinstance(kind, type) and is_dataclass(kind):
        return of_json(kind, value, others=others)
    if origin is None:
        return _scalar(kind, value, name)
    if origin in (Union, types.UnionType):
        (kind,) = (each for each in inner if each is not types.NoneType)
        return _value(kind, value, name, others)
    if origin is tuple:
        _check(isinstance(value, list), name, value, "a list")
        kinds = [inner[0]] * len(value) if inner[-1] is Ellipsis else inner
        _check(len(kinds) == len(value), name, value, f"{len(kinds)} values")
        return tuple(_value(k, v, name, others) for k, v in zip(kinds, value, strict=True))
    _check(isinstance(value, dict), name, value, "an object")
    return {key: _value(inner[1], entry, name, others) for key, entry in value.items()}


def _scalar(kind: Any, value: Any, name: str) -> Any:
    """A whole number is also a float; True and False are no numbers."""
    if kind is Path:
        _check(isinstance(value, str), name, value, "a path")
        return Path(value)
    allowed = (int, float) if kind is float else kind
    fits = isinstance(value, allowed) and (kind is bool or not isinstance(value, bool))
    _check(fits, name, value, kind.__name__)
    return value


def _check(fits: bool, name: str, value: Any, expected: str) -> None:
    if not fits:
        raise TypeError(f"{name} is {value!r}; expected {expected}")
