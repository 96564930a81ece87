"""The networks have the literature's sizes and shapes, and begin with the right statistics."""

import math

import pytest
import torch
from torch import nn

from reweigh import models
from reweigh.errors import SettingError, UnknownNameError
from reweigh.models import lenet, residual_parts, resnet, wide_resnet

COUNTS = {
    # He et al. (2016), table 6: 0.27, 0.46, 0.85 M; Zagoruyko and Komodakis: 2.7, 36.5 M.
    # convolutions 432 + 4,608 + 13,824 + 55,296, norms 32 + 64 + 128 + 256, head 650
    "resnet8-half": 75_290,
    "resnet20": 269_722,
    "resnet32": 464_154,
    "resnet56": 853_018,
    "wrn16-4": 2_748_890,
    "wrn28-10": 36_479_194,
    "lenet": 168_022,
    "mlp": 85_002,
    "digits-cnn": 151_306,
    # convolutions, norms, hidden layer and its norm, head
    "fast-cnn": 9 * (3 * 16 + 16 * 16 + 16 * 64 + 64 * 64 + 64 * 128 + 128 * 128)
    + 4 * (16 + 64 + 128)
    + (128 * 4 * 4 + 2) * 256
    + 257 * 10,
    "image-cnn": (27 + 1) * 32 + (288 + 1) * 64 + (576 + 1) * 128 + 2049 * 128 + 129 * 10,
}
INPUTS = {"lenet": (1, 28, 28), "mlp": (1, 8, 8), "digits-cnn": (1, 8, 8)}


@pytest.fixture(autouse=True)
def one_thread():
    """Two test workers with two threads each spend their time waiting for one another."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def shapes(model: nn.Module, x: torch.Tensor, kinds: tuple[type, ...]) -> list[tuple[int, ...]]:
    """Output shapes of every module of `kinds`, in the order they ran."""
    seen: list[tuple[int, ...]] = []
    hooks = [
        m.register_forward_hook(lambda _m, _i, out: seen.append(tuple(out.shape[1:])))
        for m in model.modules()
        if isinstance(m, kinds)
    ]
    with torch.no_grad():
        model(x)
    for hook in hooks:
        hook.remove()
    return seen


def test_every_model_is_counted():
    assert set(COUNTS) == set(models.MODELS)


@pytest.mark.parametrize("name", COUNTS)
def test_parameter_counts_are_the_literatures(name):
    with torch.device("meta"):
        assert parameters(models.build(name)) == COUNTS[name]


@pytest.mark.parametrize("as_published", [False, True])
@pytest.mark.parametrize("name", sorted(set(COUNTS) - {"wrn28-10"}))
def test_every_model_trains_a_step(name, as_published):
    torch.manual_seed(0)
    model = models.build(name, classes=7, as_published=as_published)
    x = torch.rand(4, *INPUTS.get(name, (3, 32, 32)))
    logits = model(x)
    assert logits.shape == (4, 7)
    nn.functional.cross_entropy(logits, torch.arange(4)).backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key
    assert model.eval()(x).isfinite().all()


def test_resnet32_has_its_shapes_layer_by_layer():
    model = models.build("resnet32")
    assert shapes(model, torch.rand(2, 3, 32, 32), (nn.Conv2d, nn.Linear)) == [
        (16, 32, 32),
        *[(16, 32, 32)] * 10,
        *[(32, 16, 16)] * 10,
        *[(64, 8, 8)] * 10,
        (10,),
    ]


def test_wrn28_10_has_its_shapes_layer_by_layer():
    with torch.device("meta"):
        model = models.build("wrn28-10", classes=100)
        seen = shapes(model, torch.empty(1, 3, 32, 32), (models.wide_resnet.WideUnit, nn.Linear))
        convolutions = [m for m in model.modules() if isinstance(m, nn.Conv2d)]
    assert seen == [
        *[(160, 32, 32)] * 4,
        *[(320, 16, 16)] * 4,
        *[(640, 8, 8)] * 4,
        (100,),
    ]
    # 28 layers: the stem, 24 in units, the head and, by the authors' count, two of the shortcuts.
    assert sum(m.kernel_size == (3, 3) for m in convolutions) == 25
    assert sum(m.kernel_size == (1, 1) for m in convolutions) == 3


def test_fast_cnn_has_its_shapes_and_only_its_first_layer_sees_the_whole_image():
    model = models.build("fast-cnn")
    assert shapes(model, torch.rand(2, 3, 32, 32), (nn.Conv2d, nn.Linear)) == [
        (16, 32, 32),
        (16, 16, 16),
        (64, 16, 16),
        (64, 8, 8),
        (128, 8, 8),
        (128, 4, 4),
        (256,),
        (10,),
    ]
    for widths in ((), (16, 0)):
        with pytest.raises(SettingError, match="expected one block at least"):
            models.FastCNNOptions(widths=widths)
    with pytest.raises(SettingError, match="8 pixels or more"):
        models.FastCNNOptions(size=7)


def test_lenet_has_its_shapes_and_a_binary_head():
    model = models.LeNet()
    assert parameters(model) == 416 + 12_832 + 51_264 + 102_500 + 101
    assert shapes(model, torch.rand(3, 1, 28, 28), (nn.Conv2d, nn.Linear)) == [
        (16, 28, 28),
        (32, 14, 14),
        (64, 7, 7),
        (100,),
        (1,),
    ]
    assert model(torch.rand(3, 1, 28, 28)).shape == (3,)
    assert models.build("lenet", classes=2)(torch.rand(3, 1, 28, 28)).shape == (3,)


@pytest.mark.parametrize("size", [28, 14, 7])
def test_lenets_pools_pad_as_tensorflow_does(size):
    """ "Same" padding: ceil(size / 2) outputs, the odd padded pixel to the right and bottom."""
    x = torch.randn(2, 3, size, size)
    odd = size % 2
    model_pool = nn.functional.max_pool2d(x, 3, 2, padding=odd, ceil_mode=not odd)
    total = (math.ceil(size / 2) - 1) * 2 + 3 - size
    before, after = total // 2, total - total // 2
    padded = nn.functional.pad(x, (before, after, before, after), value=-math.inf)
    assert torch.equal(model_pool, nn.functional.max_pool2d(padded, 3, 2))


@pytest.mark.parametrize("name", ["resnet32", "wrn16-4"])
def test_convolutions_begin_with_he_statistics(name):
    torch.manual_seed(0)
    model = models.build(name)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            expected = math.sqrt(2 / (module.out_channels * module.kernel_size[0] ** 2))
            count = module.weight.numel()
            assert module.weight.std().item() == pytest.approx(
                expected, rel=5 / math.sqrt(2 * count)
            )
            assert abs(module.weight.mean().item()) < 5 * expected / math.sqrt(count)
        if isinstance(module, nn.BatchNorm2d):
            assert (module.weight == 1).all()
            assert (module.bias == 0).all()
    assert (model.head.bias == 0).all()


def test_lenet_begins_with_a_truncated_normal():
    torch.manual_seed(0)
    model = models.LeNet()
    # A normal cut at two standard deviations keeps .880 of its spread.
    weights = torch.cat([p.flatten() for n, p in model.named_parameters() if "weight" in n])
    assert weights.abs().max() <= 0.2
    assert weights.std().item() == pytest.approx(0.1 * 0.8796, rel=0.01)
    assert all((p == 0).all() for n, p in model.named_parameters() if "bias" in n)


def test_activations_neither_vanish_nor_explode():
    torch.manual_seed(0)
    for name in ("resnet56", "wrn16-4", "mlp", "digits-cnn"):
        model = models.build(name)
        logits = model(torch.randn(32, *INPUTS.get(name, (3, 32, 32))))
        assert 0.1 < logits.std().item() < 10, name


def test_the_published_details_are_what_they_say():
    model = models.build("resnet32", as_published=True)
    layers = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    assert all((m.eps, m.momentum) == (1e-3, 1e-3) for m in layers)
    assert not any("norm" in n and "weight" in n for n, _ in model.named_parameters())
    assert parameters(model) == parameters_without_scales()
    with torch.device("meta"):
        wide = models.build("wrn28-10", as_published=True)
    rates = [(u.dropout1.p, u.dropout2.p) for u in wide.units]
    assert rates == [(0.0, 0.0), *[(0.3, 0.0)] * 11]


def parameters_without_scales() -> int:
    """Pre-activation moves the stem's norm (16) to the head (64); no norm has a scale."""
    shifts = sum([16 * 11, 32 * 10, 64 * 10])  # inputs of the norms: 5 units x 2 a stage
    convolutions = 464_154 - 650 - 2 * (16 * 11 + 32 * 10 + 64 * 10)
    return convolutions + 650 + shifts


def test_a_norm_without_scale_still_normalises():
    layer = residual_parts.Norm(scale=False)(4)
    x = torch.randn(64, 4, 5, 5) * 3 + 2
    assert torch.allclose(layer(x), nn.BatchNorm2d(4)(x), atol=1e-6)
    assert [n for n, _ in layer.named_parameters()] == ["bias"]
    assert "weight" in layer.state_dict()


def test_shortcuts_keep_the_input():
    x = torch.randn(2, 4, 6, 6)
    pad = residual_parts.shortcut("pad", 4, 8, 2)(x)
    assert torch.equal(pad[:, 2:6], x[:, :, ::2, ::2])
    assert not pad[:, :2].any()
    mean = residual_parts.shortcut("average_pool", 4, 8, 2)(x)
    assert torch.allclose(mean[:, 2:6], nn.functional.avg_pool2d(x, 2))
    assert residual_parts.shortcut("projection", 4, 8, 2)(x).shape == (2, 8, 3, 3)
    assert isinstance(residual_parts.shortcut("pad", 4, 4, 1), nn.Identity)


def test_dropout_is_only_on_in_training():
    torch.manual_seed(0)
    model = models.build("wrn16-4")
    x = torch.rand(2, 3, 32, 32)
    model.eval()
    assert torch.equal(model(x), model(x))
    model.train()
    assert not torch.equal(model(x), model(x))


def test_bad_input_says_what_to_do():
    with pytest.raises(UnknownNameError, match="did you mean 'resnet32'"):
        models.build("resnet-32")
    with pytest.raises(SettingError, match="two or more"):
        models.build("resnet32", classes=1)
    with pytest.raises(SettingError, match=r"6 k \+ 2"):
        resnet.ResNetOptions(depth=30)
    with pytest.raises(SettingError, match=r"6 k \+ 4"):
        wide_resnet.WideResNetOptions(depth=30)
    with pytest.raises(SettingError, match="dropout is 1"):
        wide_resnet.WideResNetOptions(dropout=1.0)
    with pytest.raises(UnknownNameError, match="did you mean 'input'"):
        wide_resnet.WideResNetOptions(dropout_at="inputs")
    with pytest.raises(UnknownNameError, match="did you mean 'projection'"):
        resnet.ResNet(resnet.ResNetOptions(shortcut="projektion"))
    with pytest.raises(SettingError, match="outputs is 0"):
        lenet.LeNetOptions(outputs=0)
    with pytest.raises(SettingError, match="size 0"):
        models.MLPOptions(hidden=(0,))


def test_a_residual_net_can_be_narrow_and_halve_its_image_at_once():
    from reweigh.errors import SettingError
    from reweigh.models import ResNet, ResNetOptions

    net = ResNet(ResNetOptions(depth=8, width=4, stem_stride=2))
    assert net.stem(torch.zeros(1, 3, 32, 32)).shape == (1, 4, 16, 16)
    assert net(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    assert net.head.in_features == 16
    with pytest.raises(SettingError, match="width is 0"):
        ResNetOptions(width=0)
