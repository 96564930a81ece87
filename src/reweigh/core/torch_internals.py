"""The private names of PyTorch that we use, all in this file.

None of them is promised to stay, so this is the file to look at when a new version of torch breaks
something. Each has a public face here: a re-export, or a small function that says what is asked.

The names of operations (`torch.ops.aten.mm.default`) and of the nodes of a graph ("MmBackward0") are
not in here. They are what an operation is known by, and stand where it is registered (core/ops).
"""

import re
import sys
import threading
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache
from operator import attrgetter, methodcaller
from types import FrameType
from typing import Any

import torch
import torch.utils.checkpoint as checkpointing
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.autograd import forward_ad
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.modules import module as module_hooks
from torch.nn.modules.batchnorm import _BatchNorm as BatchNormBase  # noqa: F401
from torch.nn.modules.dropout import _DropoutNd as DropoutBase  # noqa: F401
from torch.nn.utils import parametrize
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
from torch.utils.hooks import BackwardHook

from ..errors import SettingError, TorchVersionError, UnsupportedModelError

OLDEST_TORCH = (2, 6)  # the lower end of the range in pyproject.toml


def require_torch(version: str) -> None:
    """Raise if this version of PyTorch is too old, before a name is asked for that it does not have."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if found and tuple(map(int, found.groups())) < OLDEST_TORCH:
        oldest = ".".join(map(str, OLDEST_TORCH))
        raise TorchVersionError(
            f"torch {version} is installed; expected {oldest} or newer: pip install 'torch>={oldest}'"
        )


require_torch(str(torch.__version__))

# Held while a step sets switches of the whole process (compilation, fused kernels), so that another
# thread does not put them back to what it found inside the step.
PROCESS_SWITCHES = threading.RLock()


def require_usable(model: nn.Module) -> None:
    """Raise where PyTorch is in a mode, or the model of a kind, that no back-end can work with."""
    if torch.is_inference_mode_enabled():
        raise SettingError(
            "a step inside torch.inference_mode(), which records no graph; expected a training loop: "
            "leave inference_mode, or use no_grad for evaluation only"
        )
    if parametrize._cache_enabled:
        raise SettingError(
            "a step inside torch.nn.utils.parametrize.cached(), whose cached weights belong to one graph; "
            "expected the step outside of it, since a step runs more than one forward"
        )
    for module in model.modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise UnsupportedModelError(
                f"{type(model).__name__} holds a TorchScript module, whose operations cannot be "
                f"followed; expected the module before torch.jit.script or torch.jit.trace"
            )
    if any(p.is_meta for p in model.parameters()):
        raise UnsupportedModelError(
            f"{type(model).__name__} has parameters on the meta device, without values; expected a "
            f"materialised model: call to_empty(device=...) and load its weights"
        )


# The hooks on all modules of the process: dicts that PyTorch fills and empties.
_GLOBAL_HOOKS = (
    module_hooks._global_backward_pre_hooks,
    module_hooks._global_backward_hooks,
    module_hooks._global_forward_pre_hooks,
    module_hooks._global_forward_hooks,
)


def at_the_end_of_backward(call: Callable[[], None]) -> None:
    """Have `call` run when the backward pass that is under way has ended."""
    torch.autograd.Variable._execution_engine.queue_callback(call)


def any_global_hook() -> bool:
    """Whether hooks are registered on all modules of the process."""
    return any(_GLOBAL_HOOKS)


def memory_of(tensor: Tensor) -> int | None:
    """Where the memory of a tensor begins; None for one that wraps another, such as one on its way."""
    if is_traceable_wrapper_subclass(tensor):
        return None
    return tensor.untyped_storage().data_ptr()


class DispatchMode(TorchDispatchMode):
    """A dispatch mode without PyTorch's guard against compilation, which costs 10 us per call.

    For modes under which compiled code never runs.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


@cache
def is_mutable(func: OpOverload) -> bool:
    """Whether an operation writes to one of its arguments."""
    return bool(func._schema.is_mutable)


@cache
def name_of(func: OpOverload) -> str:
    """The name of an operation without its namespace and overload: `add_` for aten::add_.Tensor."""
    return str(func._schema.name.rpartition("::")[2])


@cache
def out_of_place(func: OpOverload) -> OpOverload | None:
    """The operation that computes the same without writing to its argument: `add` for `add_`."""
    name = func._schema.name.removeprefix("aten::")
    packet = getattr(torch.ops.aten, name.removesuffix("_"), None)
    if not name.endswith("_") or packet is None:
        return None
    kinds = [str(argument.type) for argument in func._schema.arguments]
    twins = [getattr(packet, overload) for overload in packet.overloads()]
    same = (twin for twin in twins if [str(a.type) for a in twin._schema.arguments] == kinds)
    return next(same, None)  # the overload may have another name: transpose.int for transpose_


# Whether a tensor is a view; the tensor it is a view of, or None; how often it was written in place.
# (attrgetters cost no Python call.)
is_view: Callable[[Tensor], bool] = methodcaller("_is_view")
base_of: Callable[[Tensor], Tensor | None] = attrgetter("_base")
version_of: Callable[[Tensor], int] = attrgetter("_version")


def saved(*names: str) -> Callable[[Any], Any]:
    """A reader of what a node of autograd's graph has saved under these names.

    One name: the value. Several: a tuple of values. Make the reader once and call it per node, since
    it is as fast as the attribute itself. Reading a tensor runs the unpack hooks of the graph (those
    of checkpointing compute it anew), so read only what is needed.
    """
    return attrgetter(*(f"_saved_{name}" for name in names))


# What a node of the graph knows of the results of its operation: `[0].shape` is that of the first.
# An attrgetter, since reading a graph asks every node with parameters.
result_metadata: Callable[[Any], Any] = attrgetter("_input_metadata")


def is_hooked_copy(func: OpOverload) -> bool:
    """Whether a call, made where gradients are off, is the copy (a view of all of it) that PyTorch makes
    of the inputs and results of a module with backward hooks, or of the inputs of a unit of fully_shard.
    It is one step of autograd."""
    if func is not torch.ops.aten.view.default:
        return False
    frame: FrameType | None = sys._getframe(1)
    for _ in range(8):
        if frame is None:
            return False
        if frame.f_code is _HOOKING or frame.f_code.co_name == _FSDP_HOOKING:
            return True
        frame = frame.f_back
    return False


_HOOKING = BackwardHook._apply_on_tensors.__code__
_FSDP_HOOKING = "_register_post_backward_hook"  # by name: importing it would cost everyone
FSDP_HOOKS = (
    "torch.distributed.fsdp."  # where the hooks are from by which fully_shard gathers and lets go
)


@contextmanager
def no_fused_recurrence() -> Iterator[None]:
    """Forbid oneDNN and cuDNN, which run recurrent layers fused.

    `torch.backends.mkldnn.flags()` is not used, since it sets another flag, too.
    """
    before = torch._C._get_mkldnn_enabled(), torch._C._get_cudnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    torch._C._set_cudnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before[0])
        torch._C._set_cudnn_enabled(before[1])


@cache
def load_forward_formulas() -> None:
    """Load PyTorch's forward-mode formulas, once.

    It loads them by itself, too, but warns then of a deprecated compiler that is its own affair.
    """
    with warnings.catch_warnings():
        for category in (DeprecationWarning, FutureWarning):
            warnings.filterwarnings("ignore", "`torch.jit.script", category)
        forward_ad._maybe_load_decompositions()


class _Recomputing(threading.local):
    """What checkpoints that this thread enters are told: the innermost is the last."""

    def __init__(self) -> None:
        self.stack: list[
            tuple[Callable[[], AbstractContextManager[object]], Callable[[], object]]
        ] = []


_RECOMPUTING = _Recomputing()
_FRAMES = threading.Lock()
_frames_inside = 0
_Frame = checkpointing._CheckpointFrame


def _frame(recompute: Callable[..., None], *rest: Any, **options: Any) -> Any:
    """A frame of a checkpoint, that recomputes as this thread has asked for."""
    if not _RECOMPUTING.stack:
        return _Frame(recompute, *rest, **options)
    context, note = _RECOMPUTING.stack[-1]
    note()

    def again(*args: Any) -> None:
        with context():
            recompute(*args)

    return _Frame(again, *rest, **options)


@contextmanager
def recomputing_under(
    context: Callable[[], AbstractContextManager[object]], note: Callable[[], object]
) -> Iterator[None]:
    """Checkpoints (not reentrant ones) that are entered inside compute anew, during any backward, under
    `context()`: with the same kernels, or they would save other tensors. note: called for each."""
    global _frames_inside  # noqa: PLW0603
    with _FRAMES:
        _frames_inside += 1
        checkpointing._CheckpointFrame = _frame  # type: ignore[misc, assignment]
    _RECOMPUTING.stack.append((context, note))
    try:
        yield
    finally:
        _RECOMPUTING.stack.pop()
        with _FRAMES:
            _frames_inside -= 1
            if not _frames_inside:
                checkpointing._CheckpointFrame = _Frame  # type: ignore[misc]


def leave_checkpoints(error: BaseException) -> None:
    """Leave the checkpoints (not reentrant ones) that an error has come through.

    PyTorch 2.6 and 2.9 do not: such a checkpoint stays open while somebody holds the error, and takes
    what later, unrelated operations save for its own. PyTorch 2.13 leaves it, and this does nothing.
    """
    open_ones = list[Generator[Any, Any, Any]]()
    trace = error.__traceback__
    while trace is not None:
        frame, trace = trace.tb_frame, trace.tb_next
        if frame.f_globals is vars(checkpointing):
            open_ones += [x for x in frame.f_locals.values() if isinstance(x, Generator)]
    for inner in reversed(open_ones):
        inner.close()


@contextmanager
def autograd_in_handler() -> Iterator[None]:
    """Switch on again, inside the handler of a dispatch mode, what the handler runs beneath.

    That is autograd, where PyTorch's forward-mode formulas are, and the symbolic zeros and conjugates
    that they use (a kernel would read those as memory).
    """
    keys = ("AutogradFunctionality", "ADInplaceOrView", "ZeroTensor", "Conjugate", "Negative")
    with ExitStack() as stack:
        for name in keys:
            key = getattr(torch._C.DispatchKey, name)
            stack.enter_context(torch._C._SetExcludeDispatchKeyGuard(key, False))
        yield


def written_down(function: Callable[..., Any], inputs: Sequence[Tensor]) -> GraphModule:
    """Every operation that `function(*inputs)` calls, as a graph; on tensors without values."""
    trace = make_fx(function, tracing_mode="fake", _allow_non_fake_inputs=True)
    graph: GraphModule = trace(*inputs)
    # Among what nobody reads are questions (is_same_size), which the compiler does not take.
    for node in reversed(graph.graph.nodes):
        func = node.target
        if node.users or not isinstance(func, OpOverload) or is_mutable(func):
            continue
        if torch.Tag.nondeterministic_seeded not in func.tags:
            graph.graph.erase_node(node)
    graph.recompile()
    return graph


@contextmanager
def reading_recurrence() -> Iterator[None]:
    """torch.compile's front end reads recurrent layers inside; else it refuses them."""
    from torch._dynamo import config  # takes long to import

    with config.patch(allow_rnn=True):
        yield


@contextmanager
def same_random_numbers() -> Iterator[None]:
    """What is compiled by inductor inside draws the numbers that uncompiled code would draw."""
    from torch._inductor import config  # takes long to import

    with config.patch(fallback_random=True):
        yield


# Whether DistributedDataParallel is inside its `join()` context; what `fully_shard` keeps about a
# module that was given to it.
join_enabled: Callable[[Any], bool] = attrgetter("_join_config.enable")
fsdp_state: Callable[[Any], Any] = methodcaller("_get_fsdp_state")


def fsdp_groups(module: Any) -> list[Any]:
    """The groups of parameters that `fully_shard` gathers together."""
    state = fsdp_state(module)
    if hasattr(state, "_fsdp_param_groups"):
        return list(state._fsdp_param_groups)
    only = state._fsdp_param_group  # PyTorch before 2.13 has one group, or none
    return [] if only is None else [only]


def fsdp_mesh(group: Any) -> Any:
    """The mesh of processes between which `fully_shard` cuts and copies the parameters of a group."""
    if getattr(group.mesh_info, "is_spmd_mesh", False):
        raise UnsupportedModelError(
            "fully_shard over a mesh that has the dimensions of other parallelism in it, too; expected the "
            "dimensions along which the batch is shared: fully_shard(..., mesh=mesh['dp'])"
        )
    return group.mesh_info.mesh


def fsdp_dimension(group: Any) -> int | None:
    """The dimension of that mesh along which parameters are cut; None if they are copied only."""
    dimension: int | None = group.mesh_info.shard_mesh_dim
    return dimension


def gathered_size(entry: Any) -> torch.Size:
    """The size of a parameter when it is gathered; of tensor parallelism's part of it, if any."""
    size: torch.Size = entry._orig_size
    return size


def is_fsdp_part(module: nn.Module) -> bool:
    """Whether a module was given to `fully_shard`, which changes its class."""
    return hasattr(type(module), "_get_fsdp_state")


def split_spec(entry: Any) -> Any:
    """How tensor parallelism has cut a parameter in a group before `fully_shard` did; None: it has not."""
    if not entry.is_dtensor:
        return None
    if hasattr(entry, "_unsharded_dtensor_spec"):
        return entry._unsharded_dtensor_spec
    return entry._tp_spec  # PyTorch before 2.13


class _Followed(threading.local):
    """Who follows the redistributions of this thread; the innermost is the last."""

    def __init__(self) -> None:
        self.stack: list[Callable[..., Any]] = []


_FOLLOWED = _Followed()
_REDISTRIBUTIONS = threading.Lock()
_followers = 0


def _redistributions() -> tuple[Any, ...]:
    """The autograd functions by which tensors become DTensors, change their placement, and come back."""
    from torch.distributed.tensor import _api, _redistribute  # takes long to import

    return _api._FromTorchTensor, _api._ToTorchTensor, _redistribute.Redistribute


@contextmanager
def following_redistributions(follow: Callable[..., Any]) -> Iterator[None]:
    """Have `DTensor.from_local`, `redistribute` and `to_local` call `follow(function, *arguments)`, which
    returns `function(*arguments)`. A dispatch mode does not see them: they run beneath autograd."""
    global _followers  # noqa: PLW0603
    with _REDISTRIBUTIONS:
        _followers += 1
        for kind in _redistributions():
            kind.apply = _follow_in_this_thread(super(kind, kind).apply)
    _FOLLOWED.stack.append(follow)
    try:
        yield
    finally:
        _FOLLOWED.stack.pop()
        with _REDISTRIBUTIONS:
            _followers -= 1
            if not _followers:
                for kind in _redistributions():
                    del kind.apply


def _follow_in_this_thread(function: Callable[..., Any]) -> Callable[..., Any]:
    def called(*arguments: Any) -> Any:
        stack = _FOLLOWED.stack
        return stack[-1](function, *arguments) if stack else function(*arguments)

    return staticmethod(called)


def whole_parameter(entry: Any) -> Tensor | None:
    """The leaf that passes compute with, of a parameter in a group; None before the first pass."""
    leaf: Tensor | None = getattr(entry, "_unsharded_param", None)
    return leaf


def members_of(name: str) -> list[int]:
    """The processes of the group that an exchange inside of a graph names."""
    from torch.distributed.distributed_c10d import _resolve_process_group

    group: Any = name  # a type of PyTorch's own, which is a text
    return torch.distributed.get_process_group_ranks(_resolve_process_group(group))


def gather_flat(whole: Tensor, shard: Tensor, group: Any) -> None:
    """Fill `whole` with the shards of all processes, by rank; by the name that this PyTorch has for it."""
    dist = torch.distributed
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    gather(whole, shard, group=group)


def reduce_flat(shard: Tensor, whole: Tensor, group: Any) -> None:
    """Fill `shard` with this process's part of the sum of `whole` over all processes."""
    dist = torch.distributed
    reduce = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    reduce(shard, whole, group=group)


def fsdp_forget_pass(module: Any) -> None:
    """Tell fully_shard that a pass, which an error has ended, will not go on; parameters are let go."""
    state = fsdp_state(module)
    groups = fsdp_groups(module)
    for owner in (state, *groups):
        owner._training_state = type(owner._training_state).IDLE
    state._state_ctx.iter_forward_root = None
    state._comm_ctx.post_forward_order.clear()
    for group in groups:
        group._post_forward_indices.clear()
    module.reshard()
