"""Whole-batch augmentation does what a loop over single images would do."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reweigh import data
from reweigh.data.batches.augmentation import augment, crop_and_flip, draw_crops
from reweigh.errors import SettingError
from reweigh.rng import Draws


def one_by_one(images, dy, dx, mirror, pad):
    out = []
    for image, y, x, m in zip(images, dy.tolist(), dx.tolist(), mirror.tolist(), strict=True):
        padded = torch.nn.functional.pad(image, (pad, pad, pad, pad))
        cut = padded[:, y : y + image.shape[1], x : x + image.shape[2]]
        out.append(cut.flip(2) if m else cut)
    return torch.stack(out)


@given(st.integers(0, 4), st.integers(1, 9), st.booleans(), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_it_equals_a_loop(pad, count, flip, seed):
    images = torch.randint(0, 256, (count, 3, 6, 5), dtype=torch.uint8)
    augmentation = data.Augmentation(pad=pad, flip=flip)
    crops = draw_crops(augmentation, Draws(seed, "a"), count)
    result = augment(images, augmentation, crops)
    assert result.dtype == torch.uint8
    assert torch.equal(result, one_by_one(images, *crops, pad))
    assert flip or not crops.mirror.any()


def test_the_middle_crop_is_the_image():
    images = torch.randint(0, 256, (4, 3, 8, 8), dtype=torch.uint8)
    middle = torch.full((4,), 2)
    assert torch.equal(crop_and_flip(images, middle, middle, middle.eq(0), 2), images)


def test_crops_and_flips_are_even():
    crops = draw_crops(data.Augmentation(pad=4), Draws(0, "a"), 90_000)
    for offsets in (crops.dy, crops.dx):
        assert (offsets.bincount(minlength=9) - 10_000).abs().max() < 500
    assert crops.mirror.double().mean().item() == pytest.approx(0.5, abs=0.01)


def test_scalings_have_their_ranges():
    images = torch.tensor([0, 255], dtype=torch.uint8).view(1, 1, 1, 2)
    assert data.SCALINGS["unit"](images).flatten().tolist() == pytest.approx([0, 1])
    assert data.SCALINGS["symmetric"](images).flatten().tolist() == pytest.approx([-1, 1])
    digits = torch.tensor([0, 16], dtype=torch.uint8).view(1, 1, 1, 2)
    assert data.SCALINGS["unit"](digits, 16).flatten().tolist() == pytest.approx([0, 1])


def test_fitted_scaling_standardises_every_channel():
    images = torch.randint(0, 256, (50, 3, 8, 8), dtype=torch.uint8)
    images[:, 1] //= 2
    scaled = data.Scaling.of(data.Examples(images, torch.zeros(50)))(images)
    assert torch.allclose(scaled.mean(dim=(0, 2, 3)), torch.zeros(3), atol=1e-4)
    assert torch.allclose(scaled.std(dim=(0, 2, 3), correction=0), torch.ones(3), atol=1e-4)


def test_negative_padding_is_refused():
    with pytest.raises(SettingError, match="pad is -1"):
        data.Augmentation(pad=-1)
