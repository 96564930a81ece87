"""A network of the user's own: `--model package.module:factory`.

    def factory(*, shape, outputs):         # shape of one input, as (30,) or (3, 32, 32)
        return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), outputs))

The factory, which may be a class, is called with these two keywords under the seed of the run, and gives a
new `nn.Module`. It takes float32 [n, *shape], encoded and scaled, and gives [n, outputs] logits; in a
regression [n] numbers. Modules are looked for in the current folder first, as `python -m` does.

Loading such a run imports that module and calls the factory: the one kind of run that runs code.
"""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..errors import ReweighError, SettingError, unknown
from ..runs import Network
from ..text import first_line

OWN = "own"
FORM = "expected package.module:factory, for example my_models:small_network"


def own_network(name: str, shape: tuple[int, ...], outputs: int, *, regression: bool) -> Network:
    """The network that the factory `name` makes, tried on two rows of zeros."""
    network = Network(OWN, shape, outputs, regression=regression, factory=name)
    model = make_own(network)
    if not any(p.requires_grad for p in model.parameters()):
        raise SettingError(f"--model {name} gives a network without a parameter to train")
    expected = (2,) if regression else (2, outputs)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        try:
            given = model.eval()(torch.zeros(2, *shape))
        except Exception as error:  # a model raises whatever it likes
            raise SettingError(
                f"--model {name} cannot take inputs of shape {(2, *shape)}: "
                f"{type(error).__name__}: {first_line(error)}"
            ) from error
    found = tuple(given.shape) if isinstance(given, torch.Tensor) else type(given).__name__
    if found != expected:
        hint = "; squeeze the last dimension" if found == (2, 1) else ""
        raise SettingError(
            f"--model {name} gives {found} for two inputs; expected a tensor of shape {expected}{hint}"
        )
    return network


def make_own(network: Network) -> nn.Module:
    """A new model by the user's factory."""
    name = network.factory
    factory = _factory(name)
    try:
        model = factory(shape=tuple(network.shape), outputs=network.outputs)
    except ReweighError:
        raise
    except Exception as error:  # it is the user's code
        raise SettingError(
            f"--model {name} cannot be called with shape={network.shape}, outputs={network.outputs}: "
            f"{type(error).__name__}: {first_line(error)}; expected def factory(*, shape, outputs)"
        ) from error
    if not isinstance(model, nn.Module):
        raise SettingError(
            f"--model {name} gives {type(model).__name__}; expected a torch.nn.Module"
        )
    return model


def _factory(name: str) -> Callable[..., Any]:
    module_name, colon, attribute = name.partition(":")
    if not colon or not module_name or not attribute.isidentifier():
        raise SettingError(f"--model is {name!r}; {FORM}")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
        importlib.invalidate_caches()
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # importing runs the user's code
        raise SettingError(
            f"--model {name}: {module_name} cannot be imported "
            f"({type(error).__name__}: {first_line(error)}); {FORM}, in the current folder or installed"
        ) from error
    factory = getattr(module, attribute, None)
    if factory is None:
        public = [each for each in vars(module) if not each.startswith("_")]
        raise SettingError(f"--model {name}: {unknown('factory', attribute, public[:40])}")
    if not callable(factory):
        raise SettingError(f"--model {name} is no function, but {type(factory).__name__}; {FORM}")
    called: Callable[..., Any] = factory
    return called
