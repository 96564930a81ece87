"""Initial weights of all networks but LeNet; biases start at zero.

convolutions                     N(0, 2 / fan_out), fan_out = outputs * kernel area
linear layers before a ReLU      N(0, 2 / fan_in); the last one N(0, 1 / fan_in)
"""

import math

from torch import nn


def he(model: nn.Module) -> None:
    """He et al. (2015) for convolutions and linear layers; the last linear layer has gain one."""
    linear = [m for m in model.modules() if isinstance(m, nn.Linear)]
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.Linear):
            gain = 1.0 if module is linear[-1] else 2.0
            nn.init.normal_(module.weight, std=math.sqrt(gain / module.in_features))
        if isinstance(module, nn.Conv2d | nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
