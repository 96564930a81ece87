"""Attention by the fused kernel: y = P v, P = softmax(s q k' + mask), s the scale.

    t(y) = D v - sum(D) y + P t(v),    D = P t(S) by elements,    t(S) = s (t(q) k' + q t(k)') + t(mask)

with sums over the keys. The kernel keeps the logarithm L of the sums that softmax divides by, so that
P = exp(S - L) is one product and one exponential away. Only the tangent needs it: forward and backward stay
fused.

Cost: five products of the size of q k', where the forward has two. Memory: P and D, while this tangent is
computed.
"""

import math
from typing import Any

from torch import Tensor

from .elementwise import total
from .parameterless import NO_PARAMETERS
from .registry import Lookup, Value, aten, operation


@operation(aten._scaled_dot_product_flash_attention_for_cpu.default, lacks=NO_PARAMETERS)
class FusedAttention:
    """y and L, for q, k and v of [n, heads, length, width]; on CPUs, without dropout."""

    @staticmethod
    def tangent(
        t: Lookup, out: tuple[Tensor, Tensor], q: Tensor, k: Tensor, v: Tensor,
        dropout_p: float = 0.0, is_causal: bool = False, *,
        attn_mask: Tensor | None = None, scale: float | None = None,
    ) -> tuple[Value, None]:  # fmt: skip
        """D v - sum(D) y + P t(v)."""
        tq, tk, tv, tm = t(q), t(k), t(v), t(attn_mask)
        y, logs = out
        kind = (
            logs.dtype
        )  # float32 for coarser operands, whose products are not rounded to them here

        def wide(x: Any) -> Any:
            return x if x is None or x.dtype == kind else x.to(kind)

        q, k, v, tq, tk, tv, tm = map(wide, (q, k, v, tq, tk, tv, tm))
        s = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
        scaled = q * s
        p = scaled @ k.mT
        if attn_mask is not None:
            p = p + wide(attn_mask)
        hidden = (
            None if attn_mask is None else p == -math.inf
        )  # for rows that see nothing, L is too
        p = p.sub_(logs.unsqueeze(-1)).exp_()
        if hidden is not None:
            p.masked_fill_(hidden, 0)
        if is_causal:
            p = p.tril_()
        moved = total(
            None if tq is None else (tq * s) @ k.mT, None if tk is None else scaled @ tk.mT, tm
        )
        result = None if tv is None else p @ tv
        if moved is not None:
            d = p * moved
            result = total(d @ v - d.sum(-1, keepdim=True) * y, result)
        return (None if result is None else result.to(y.dtype)), None
