"""Compiled steps: built when a batch asks for one, proven against the eager step, counted, and run.

    capture both sides (guards)  ->  known?  --yes, no look due-->  run the compiled graph
                                       | no, or a look is due
                                       v
                                 run the eager step, too, and compare

A look is due at the first use of a compiled step, at the 2nd, 4th, 8th, ... and every 128th (proof.py).
What disagrees, or cannot be captured, traced or compiled, is refused, and the eager step goes on with the
reason.

Each pair of graphs (a shape of the train batch, a shape of the clean batch, a state of the model) is
compiled once. At most `MOST_STEPS` are: batches of further shapes run eagerly, with a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ..._warn import warn
from ...errors import ReweighError, SettingError, UnsupportedModelError
from ..backends import Choice
from ..model import Batch, Direction, Loss, ModelView, Snapshot
from ..proof import next_look
from ..rounding import tolerance
from ..safeguard import NextBatchJudge, Safeguard
from ..step import Step
from ..torch_internals import any_global_hook
from .agreement import Named, difference, with_last_bits_changed
from .capture import CapturedPass, LossCapture
from .compiled_step import CompiledNumbers, CompiledStep, compiled
from .traced_step import STATE, WAYS, InputPlaces, TracedStep

MOST_STEPS = 8
SIZES = ". Keep sizes of batches and modes of the model the same, for instance with drop_last=True"
OTHERWISE = "a window, or batches of another shape than those compiled"
OPTIONS = ("backend", "mode", "options")  # of torch.compile, that may be given


def require_options(compile: bool | Mapping[str, Any]) -> dict[str, Any] | None:
    """The options for torch.compile; None where nothing is to be compiled."""
    if compile is True or compile is False or compile is None:
        return {} if compile else None
    if not isinstance(compile, Mapping) or not set(compile) <= set(OPTIONS):
        raise SettingError(
            f"compile={compile!r}; expected True, False, or a dict with options of torch.compile: "
            f"{', '.join(OPTIONS)}"
        )
    return dict(compile)


@dataclass(frozen=True)
class Reference:
    """The eager step on the same batches.

    gradient(): before the safeguard's factor, per aligned parameter.
    finish():   the eager `Step`, which the safeguard counts.
    """

    view: ModelView
    choice: Choice
    losses: Tensor
    scores: Tensor
    clean_loss: Tensor
    direction: Direction
    gradient: Callable[[], Sequence[Tensor | None]]
    finish: Callable[[], Step]


@dataclass
class CompileLog:
    """steps: compiled so far. seconds: spent on that. refused: why nothing is compiled; None if it is.
    eager: steps of this Reweighter that ran eagerly, looks not counted."""

    steps: int = 0
    seconds: float = 0.0
    refused: str | None = None
    eager: int = 0


@dataclass(frozen=True)
class Passes:
    """Both sides of a step, captured. key: the same while all guards hold."""

    train: CapturedPass
    clean: CapturedPass

    @property
    def key(self) -> Hashable:
        """The two graphs."""
        return self.train.graph, self.clean.graph


Done = tuple[Step, Tensor, Choice]  # the step, its clean losses, its back-end


class CompiledRoute:
    """The compiled steps of one Reweighter.

    reference: runs the eager step on two batches. closed: why nothing can be compiled, if known.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        safeguard: Safeguard | None,
        options: Mapping[str, Any],
        *,
        reference: Callable[[Batch, Batch], Reference],
        closed: str | None = None,
    ) -> None:
        self.log = CompileLog(refused=closed)
        self._model, self._options = getattr(model, "_orig_mod", model), options
        self._safeguard, self._reference = safeguard, reference
        if closed is None and not (safeguard is None or type(safeguard) is NextBatchJudge):
            self.log.refused = "a safeguard of your own is run as written"
        self._captures = [LossCapture(self._model, loss) for _ in range(2)]
        self._steps: dict[Hashable, CompiledStep | None] = {}  # None: refused
        self._eager_shapes: set[Hashable] = set()  # that Dynamo has refused
        self._warned = False
        self._latest: str | None = None  # why some steps run eagerly

    def __call__(self, train: Batch, clean: Batch) -> Done | None:
        """The step, its clean losses and its back-end; None where the eager step has to go."""
        done = self._tried(train, clean)
        self.log.eager += done is None
        return done

    def _tried(self, train: Batch, clean: Batch) -> Done | None:
        if self.log.refused is not None or any_global_hook():
            return None
        if not self._steps:  # the eager step comes first, and tells whether the model keeps state
            return self._looked(None, train, clean)
        if self._eager_shapes and _shapes(train, clean) in self._eager_shapes:
            return None
        try:
            passes = self._captured(train, clean)
        except Exception as error:
            self._eager_shapes.add(_shapes(train, clean))
            self._warn_once(in_short(error), SIZES)
            return None
        step, known = self._steps.get(passes.key), passes.key in self._steps
        if step is not None and not step.record.due() and not self._first():
            step.record.uses += 1
            outcome = step.run(passes.train, passes.clean, self._state())
            self._keep(outcome)
            return outcome.step(), outcome.clean_losses, step.choice
        if not known and len(self._steps) >= MOST_STEPS:
            self._warn_once(f"{MOST_STEPS} of them were compiled already", SIZES)
            self._steps[passes.key], known = None, True
        refused = known and step is None
        return None if refused else self._looked(step, train, clean)

    def _captured(self, train: Batch, clean: Batch) -> Passes:
        """Both sides of the step, captured."""
        first, second = self._captures
        mine, theirs = first(train), second(clean)
        if mine is None or theirs is None:
            raise UnsupportedModelError("the compiler is switched off (torch.compiler.set_stance)")
        return Passes(mine, theirs)

    def _state(self) -> list[Tensor]:
        """The safeguard's; empty without one."""
        if self._safeguard is None:
            return []
        state = self._safeguard.state_dict()
        return [state[name] for name in STATE]

    def _keep(self, outcome: CompiledNumbers) -> None:
        if self._safeguard is not None:
            self._safeguard.load_state_dict(dict(zip(STATE, outcome.state, strict=True)))

    def _looked(self, step: CompiledStep | None, train: Batch, clean: Batch) -> Done:
        """A step that is compared with the eager one. step: None if it is still to be compiled."""
        view = ModelView(self._model)
        before = view.snapshot()
        reference = self._reference(train, clean)
        truth = reference.gradient()
        after = view.snapshot()
        # The safeguard's first step looks at the gradient, as no other does: it is the eager one.
        finished = reference.finish() if self._first() else None
        passes, state = None, self._state()
        try:
            _require_plain(reference, truth)
            passes = self._captured(train, clean)
            if not after.holds():
                raise UnsupportedModelError("the forward draws random numbers in Python")
            built = step or self._built(reference, passes, state)
            before.restore()
            run = built.first_run if step is None else built.run
            outcome = run(passes.train, passes.clean, state)

            def nudged(bits: int) -> tuple[Reference, Sequence[Tensor | None]]:
                before.restore()
                return self._nudged(bits, reference.direction, train, clean)

            wrong = _difference(reference, truth, outcome, view, after, nudged)
        except Exception as error:
            wrong = in_short(error)
        if wrong is not None or finished is not None:
            after.restore()
        if wrong is not None:
            self._refuse(passes, wrong)
            done = finished or reference.finish()
            return done, done.clean_loss.reshape(1), self.explained(reference.choice)
        assert passes is not None
        if step is None:
            self.log.steps += 1
            self.log.seconds += built.seconds
        self._steps[passes.key] = built
        built.record.uses += 1
        built.record.next_look = next_look(built.record.uses)
        if finished is not None:
            return finished, finished.clean_loss.reshape(1), built.choice
        self._keep(outcome)
        return outcome.step(), outcome.clean_losses, built.choice

    def _nudged(
        self, bits: int, direction: Direction, train: Batch, clean: Batch
    ) -> tuple[Reference, Sequence[Tensor | None]]:
        """The eager step and its gradient, after a change of every parameter by so many last bits."""
        kept = [p.data for p in direction.parameters]
        try:
            for p in direction.parameters:
                p.data = with_last_bits_changed(p, bits)
            step = self._reference(train, clean)
            return step, step.gradient()
        finally:
            for p, data in zip(direction.parameters, kept, strict=True):
                p.data = data

    def _refuse(self, passes: Passes | None, why: str) -> None:
        """Not these graphs again; nothing at all, if nothing was compiled before."""
        self.log.eager += 1
        if not any(self._steps.values()):
            self.log.refused = why
            return
        if passes is not None:
            self._steps[passes.key] = None
        self._warn_once(why)

    def _warn_once(self, why: str, hint: str = "") -> None:
        self._latest = why
        if not self._warned:
            self._warned = True
            warn(
                f"after {self.log.steps} compiled steps ({self.log.seconds:.0f} s), some batches run "
                f"eagerly: {why}{hint}"
            )

    def _first(self) -> bool:
        """Before the safeguard's first step, and where it goes on from an older state."""
        return self._safeguard is not None and not self._safeguard.state_dict().keys() >= {*STATE}

    def _built(self, reference: Reference, passes: Passes, state: Sequence[Tensor]) -> CompiledStep:
        """Traced by the cheapest way that can."""
        train, clean = passes.train, passes.clean
        direction, refused = reference.direction, list[str]()
        theta = direction.parameters
        model_tensors = {id(x) for x in (*self._model.parameters(), *self._model.buffers())}
        _require_inputs(passes, {id(p) for p in theta})
        places = InputPlaces.of(train.inputs, clean.inputs, theta, model_tensors)
        flat = places.gathered(train.inputs, clean.inputs, theta)
        for way in WAYS:
            if way == "ghost" != reference.choice:
                continue
            traced = TracedStep(reference.view, direction.names, train, clean, places, way)
            try:
                traced.settle(flat)
                _require_buffers(traced, flat, model_tensors)
                return compiled(traced, theta, flat, state, self._options, reference.choice)
            except Exception as error:
                refused.append(f"{way}: {in_short(error)}")
        raise UnsupportedModelError("; ".join(refused))

    def explained(self, choice: Choice) -> Choice:
        """A back-end of the eager step, with the reason why it is not compiled."""
        latest = f"{self._latest}, or " if self._latest else ""
        why = self.log.refused or f"{latest}{OTHERWISE}"
        if choice.reason.endswith(why):
            return choice
        return Choice(choice, f"{choice.reason}; not compiled: {why}")


def _require_plain(reference: Reference, gradient: Sequence[Tensor | None]) -> None:
    """Raise where a graph would not show all that a step does, or could not hold its gradient."""
    if any(g is not None and g.is_sparse for g in gradient):
        raise UnsupportedModelError(
            "a gradient is sparse, and a compiled graph holds dense tensors only: build the embedding "
            "with sparse=False"
        )
    view, theta = reference.view, {id(p) for p in reference.direction.parameters}
    if view.backward_hooked():
        raise UnsupportedModelError("a module has backward hooks")
    if view.trained() != theta:
        raise UnsupportedModelError("more parameters are trained than aligned")
    watch = view.watch
    if watch is None or not watch.looked:
        return
    buffers = {id(b) for module in (*view.modules, *watch.modules) for b in module.buffers(False)}
    if watch.holders or watch.arrays or watch.written - buffers:
        raise UnsupportedModelError("the forward keeps state outside of buffers, such as a counter")


def _require_inputs(passes: Passes, theta: set[int]) -> None:
    """Raise where a graph reads what cannot be handed to a compiled one."""
    for x in (*passes.train.inputs, *passes.clean.inputs):
        if not isinstance(x, Tensor):
            raise UnsupportedModelError(f"the graph reads a {type(x).__name__}")
        if x.requires_grad and id(x) not in theta:
            raise UnsupportedModelError("a tensor that is no parameter of the model is trained")


def _require_buffers(traced: TracedStep, flat: Sequence[Tensor], own: set[int]) -> None:
    if any(id(flat[place]) not in own for place in traced.written):
        raise UnsupportedModelError("the forward writes to the batch in place")


def _difference(
    reference: Reference,
    truth: Sequence[Tensor | None],
    outcome: CompiledNumbers,
    view: ModelView,
    after: Snapshot,
    nudged: Callable[[int], tuple[Reference, Sequence[Tensor | None]]],
) -> str | None:
    """What the compiled step got wrong; None if nothing. nudged: as in `difference`; it may leave the
    state of another step behind, which is undone."""
    kind = view.precision(reference.losses)
    if not after.alike(tolerance(kind)):
        return "it leaves buffers or random numbers in another state"
    by_id = {id(p): g for p, g in zip(outcome.touched, outcome.gradient, strict=True)}
    theta = reference.direction.parameters
    if {id(p) for p, g in zip(theta, truth, strict=True) if g is not None} != set(by_id):
        return "it reaches other parameters than the eager step"
    some = [(by_id[id(p)], g) for p, g in zip(theta, truth, strict=True) if g is not None]
    factor = outcome.factor

    def scaled(gradient: Sequence[Tensor | None]) -> list[Tensor]:
        pairs = zip(gradient, truth, strict=True)
        return [
            (right if g is None else g).detach() * factor.to(right.dtype)
            for g, right in pairs
            if right is not None
        ]

    def once_more(bits: int) -> tuple[Named, list[Tensor]]:
        try:
            step, gradient = nudged(bits)
            return _values(step), scaled(gradient)
        finally:
            after.restore()

    return difference(
        _values(outcome),
        _values(reference),
        [mine for mine, _ in some],
        scaled(truth),
        kind,
        once_more,
    )


def _values(step: Reference | CompiledNumbers) -> Named:
    """What is compared besides the gradient."""
    return {"losses": step.losses, "scores": step.scores, "clean loss": step.clean_loss}


def in_short(error: BaseException) -> str:
    """The first line of an error, and the next where it only announces it; its kind unless it is ours."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    text = " ".join(lines[: 2 if lines[0].endswith(":") else 1])
    return text if isinstance(error, ReweighError) else f"{type(error).__name__}: {text}"


def _shapes(train: Batch, clean: Batch) -> Hashable:
    return tuple(x.shape for x in tree_leaves((train, clean)) if isinstance(x, Tensor))
