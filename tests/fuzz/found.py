"""Specs that have broken a promise once, by what went wrong. Each is run by the tests, every back-end."""

from __future__ import annotations

from .grammar import Layer, Spec, Step

FOUND: dict[str, Spec] = {
    "forward_mode lost the tangent of a Function's parameter, too little to see in float32": Spec(
        form="volume",
        layers=(Layer("own_linear_function"),),
        loss="kl",
        dtype="float32",
        seed=2,
        steps=(Step(n=5, m=2), Step(m=1)),
    ),
    "a copy of the batch had other strides, and plain training's forward failed on it": Spec(
        form="volume",
        layers=(Layer("elu_"), Layer("instance_norm")),
        loss="one_by_one",
        strided=True,
    ),
    "a hook of a parameter without a gradient was called with None": Spec(
        form="tokens",
        layers=(Layer("weighted_bag", (3,)),),
        hooks=(("parameter", 1),),
        chunk=2,
    ),
    "a hook of a parameter ran for every chunk, and again": Spec(
        hooks=(("parameter", 0),), chunk=3
    ),
    "a refusal left random states moved": Spec(
        form="image", layers=(Layer("layer_norm"), Layer("batch_mean")), loss="smoothed_at_random"
    ),
    "a refusal left buffers moved": Spec(form="sequence", layers=(Layer("batch_norm"),)),
    "a refusal left Python's random state moved": Spec(
        form="sequence", layers=(Layer("selected_steps"), Layer("noise", (1,)))
    ),
    "PyTorch's forward-mode formula of norm() failed": Spec(
        form="image", layers=(Layer("weight_norm", (5,)),)
    ),
    "a parameter of chunks without weight had no gradient": Spec(
        form="volume",
        layers=(Layer("skipped_at_random"),),
        chunk=2,
        seed=1,
        steps=(Step(n=6, m=2, seed=2),),
    ),
    "nothing exact followed cdist": Spec(layers=(Layer("prototypes"),)),
    "nothing exact followed BatchNorm and CTC": Spec(layers=(Layer("batch_norm"),), loss="ctc"),
    "nothing exact followed BatchNorm and multi_margin": Spec(
        layers=(Layer("batch_norm"),), loss="multi_margin"
    ),
    "nothing exact followed BatchNorm and grid_sample": Spec(
        form="image", layers=(Layer("batch_norm"), Layer("spatial_transformer"))
    ),
    "one pass on request wrote to the user's batch": Spec(
        layers=(Layer("leaky_relu_"),), loss="nll", one_pass=True, steps=(Step(m=2),)
    ),
    "a layer of bfloat16 before LayerNorm": Spec(
        layers=(Layer("experts"), Layer("layer_norm")), dtype="float32", autocast=True
    ),
    "attention in a checkpoint": Spec(
        form="sequence", layers=(Layer("checkpointed", (), (Layer("padded_attention"),)),)
    ),
    "calls were counted twice": Spec(form="volume", layers=(Layer("counter"),)),
    "a table with max_norm was written by the clean batch": Spec(
        form="tokens", layers=(Layer("embedding", (3,)),), seed=2, steps=(Step(n=1),)
    ),
    "the clean batch was seen by a loss that remembers": Spec(form="image", loss="remembering"),
    "the clean batch was counted by a criterion with a buffer": Spec(
        form="sequence", loss="with_buffer"
    ),
    "a backward hook under forward_mode": Spec(form="image", hooks=(("backward", 1),)),
    "an EmbeddingBag by its largest": Spec(form="tokens", layers=(Layer("embedding_bag", (2,)),)),
    "an embedding scaled by frequency": Spec(form="tokens", layers=(Layer("embedding", (2,)),)),
    "trained weights of the samples of a bag": Spec(
        form="tokens", layers=(Layer("weighted_bag", (1,)),)
    ),
    "chunks of a list of inputs": Spec(
        form="image", loss="nll", batch="listed", chunk=2, steps=(Step(n=3),)
    ),
}
