"""The paper's tasks as named values (Ren et al., 2018, section 4), and how the published code differs.

| preset            | data                       | noise               | clean      | hyper |
|-------------------|----------------------------|---------------------|------------|-------|
| mnist-imbalance   | MNIST 4 vs 9, 5,000 images | none; 9 has a share | 10 (5 + 5) | -     |
| cifarN-uniform    | 50,000 images              | UniformFlip .4      | 1,000      | 5,000 |
| cifarN-background | 50,000 images              | BackgroundFlip .4   | 10 / class | 5,000 |

45,000 images are for training and 5,000 for hyper-validation; the clean images are cut out of the
45,000, so 44,000 (44,900 in cifar10-background) are left with doubtful labels.

`published_code=True` is how the authors' public code differs from their text: MNIST leaves out the
first 5,000 images and tests on 250 of each digit; CIFAR flips may hit the label itself and
never the last class, and clean images are drawn without regard to class.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from ...errors import SettingError, unknown
from .task import Recipe

MAJORITY_SHARES = (0.9, 0.95, 0.98, 0.99, 0.995)
"""The shares of class 9 in the paper's imbalance figure: about 10 to 200 nines for each four."""

BACKGROUNDS: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {"cifar10": (0, 1, 3, 5, 7), "cifar100": (7, 12, 41, 62, 85)}
)
"""The background class of each of the five seeds."""

# 4 becomes class 0 (negative) and 9 class 1 (positive), the majority.
_IMBALANCE = Recipe("mnist", keep=(4, 9), majority=9, share=0.995, size=5000, clean_per_class=5)
_UNIFORM = Recipe("cifar10", "uniform_flip", 0.4, clean=1000, hyper_validation=5000)
_BACKGROUND = Recipe("cifar10", "background_flip", 0.4, clean_per_class=10, hyper_validation=5000)

PRESETS: Mapping[str, Recipe] = MappingProxyType(
    {
        "mnist-imbalance": _IMBALANCE,
        "cifar10-uniform": _UNIFORM,
        "cifar100-uniform": replace(_UNIFORM, dataset="cifar100"),
        "cifar10-background": _BACKGROUND,
        "cifar100-background": replace(_BACKGROUND, dataset="cifar100"),
    }
)
"""The paper's tasks by name; `preset` fills in what depends on the seed."""


def preset(
    name: str,
    *,
    seed: int = 0,
    share: float | None = None,
    rate: float | None = None,
    background: int | None = None,
    published_code: bool = False,
) -> Recipe:
    """The recipe called `name`, with the experiment's own variable set.

    Without `background`, a background task takes the paper's class for the seed (0 ... 4, cycled).
    """
    if name not in PRESETS:
        raise unknown("preset", name, PRESETS)
    recipe = PRESETS[name]
    if share is not None:
        if not recipe.size:
            raise SettingError(f"{name} has no majority share to set; it is for mnist-imbalance")
        recipe = replace(recipe, share=share)
    if rate is not None:
        recipe = replace(recipe, rate=rate)
    if recipe.corruption == "background_flip":
        classes = BACKGROUNDS[recipe.dataset]
        recipe = replace(
            recipe, background=classes[seed % len(classes)] if background is None else background
        )
    elif background is not None:
        raise SettingError(f"{name} has no background class to set")
    return _as_published(recipe) if published_code else recipe


def scaled(recipe: Recipe, *, examples: int, of: int = 50_000) -> Recipe:
    """The recipe for a smaller set: totals shrink by examples / of, counts per class stay."""
    if not 0 < examples <= of:
        raise SettingError(f"{examples} examples were asked of {of}; expected 1 ... {of}")
    return replace(
        recipe,
        clean=recipe.clean * examples // of,
        hyper_validation=recipe.hyper_validation * examples // of,
        size=recipe.size * examples // of,
    )


def _as_published(recipe: Recipe) -> Recipe:
    if recipe.dataset == "mnist":
        return replace(recipe, skip=5000, test_per_class=250)
    classes = 100 if recipe.dataset == "cifar100" else 10
    return replace(
        recipe,
        variant="published_code",
        clean=recipe.clean or recipe.clean_per_class * classes,
        clean_per_class=0,
    )
