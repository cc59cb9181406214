# SPDX-License-Identifier: Apache-2.0
"""The loss scaler, with the constructor, methods and state_dict of ``torch.amp.GradScaler``."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, overload

from . import policy as _policy
from . import reducers
from ._native import FLOAT32_MAX, Closeable, integer, native, real, stream_number
from .arrays import as_tensor, common_device, tensor_array
from .device import Context, DeviceLike, resolve_context
from .errors import BadStateError, InvalidArgumentError
from .memory import require_no_overlap, same_order
from .messages import named_errors
from .optim import Optimizer
from .policy import Unpack
from .report import HistoryEntry, Report, history_of, read_report
from .scale_outputs import require_no_grad, scale_outputs
from .scale_use import OLD_GRADIENTS, ScaleUse
from .tensors import TensorList
from .torch_memory import mark_written

#: What stands for a list of gradients: the list itself, or the optimizer that steps on it.
Gradients = Optimizer | TensorList

_T = TypeVar("_T")
_NORMS = {2.0: native.NORM_L2, float("inf"): native.NORM_INF}
_TORCH_KEYS = ("scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker")
_INTEGERS, _INT32 = ("growth_interval", "_growth_tracker"), (-(1 << 31), (1 << 31) - 1)
# Ours, under one further key, so that PyTorch can load the rest.
_COUNTERS = _policy.COUNTERS
# Their names in messages.
_STATE_FIELDS = {**{key.lstrip("_"): f"state_dict[{key!r}]" for key in _TORCH_KEYS},
                 **{key: f"state_dict['gradscaler'][{key!r}]" for key in _COUNTERS}}


class GradScaler(Closeable):
    """Keeps a loss scale, skips steps with inf or NaN gradients, and adapts the scale.

    `device` is a context, a device's name such as ``"cuda:0"`` or a ``torch.device``, by default the CPU. The scale
    starts at `init_scale` (> 0); it is multiplied by `growth_factor` (> 1) after `growth_interval` (>= 1) clean steps
    in a row, and by `backoff_factor` (in (0, 1)) at an overflow. With ``enabled=False`` nothing is scaled, checked or
    skipped. With ``enabled="check"``, for bfloat16 and float32, the scale is 1 and stays, and all else is done. This is
    PyTorch's policy. `policy` are options beyond it (:class:`gradscaler.policy.Policy`);
    :meth:`from_preset` has other systems' policies. Raises InvalidArgumentError naming the argument that is out of
    range, UnavailableError for a missing device.

    In every method `optimizer` is one of this package, or a :class:`gradscaler.TensorList` of gradients. On CUDA, work
    goes to the stream of the gradients. "Blocks" means that a method waits for the device. Use a scaler from one thread
    at a time.
    """

    __slots__ = ("context", "_stream", "_has_stream", "_iteration", "_reduce", "_scale_use")

    def __init__(self, device: DeviceLike = None, init_scale: float = 2.0**16, growth_factor: float = 2.0,
                 backoff_factor: float = 0.5, growth_interval: int = 2000, enabled: bool | Literal["check"] = True,
                 **policy: Unpack[_policy.Policy]) -> None:
        options = native.ScalerOptions()
        _policy.apply(options, dict(init_scale=init_scale, growth_factor=growth_factor, backoff_factor=backoff_factor,
                                    growth_interval=growth_interval, enabled=enabled, **policy))
        #: The context of the scaler's device scalars.
        self.context: Context = resolve_context(device)
        self._stream = 0
        self._has_stream = False
        self._iteration = 0
        # From the first scale() on.
        self._scale_use: ScaleUse | None = None
        self._reduce: Any = None
        with named_errors():
            super().__init__(native.Scaler(self.context._handle, options))

    @classmethod
    def from_preset(cls, preset: _policy.Preset, *, device: DeviceLike = None, **overrides: Any) -> GradScaler:
        """A scaler with the policy of another system, `preset`, one of :data:`gradscaler.PRESETS`.

        `device` and `overrides` are the constructor's arguments; `overrides` replace options of the preset. Raises the
        constructor's errors, and ValueError for an unknown preset.
        """
        return cls(device, **_policy.of_preset(preset, overrides))

    # One iteration.

    @overload
    def scale(self, outputs: float) -> float: ...

    @overload
    def scale(self, outputs: _T) -> _T: ...

    @overload
    def scale(self, outputs: object, out: _T) -> _T: ...

    def scale(self, outputs: object, out: object = None) -> object:
        """`outputs` times the scale: a number, an array, or several in lists, tuples, dicts and iterators, nested.

        Tensors of PyTorch and arrays of JAX are multiplied by their own library, so that autograd and tracers follow;
        as in PyTorch, one of 16 bits without dimensions becomes float32, of NumPy and CuPy too, and integers become
        floating point. Arrays of NumPy and CuPy and ``array.array`` are copied, or written to `out`, an array of the
        same shape and of any floating dtype, which may be the array itself. Raises TypeError for arrays of other
        libraries, and ValueError inside ``jax.jit`` and PyTorch's tracers, where the scale would become a constant.
        """
        if self._scale_use is None:
            self._scale_use = ScaleUse()
        self._scale_use.scaled()
        if out is not None:
            require_no_grad(outputs)
            self._scale_into(outputs, out)
            return out
        return scale_outputs(outputs, float(self._handle.get_scale(self.stream)), self._scaled_in_place)

    def _scaled_in_place(self, array: Any) -> Any:
        self._scale_into(array, array)
        return array

    def _scale_into(self, outputs: Any, out: Any) -> None:
        source = as_tensor(outputs, argument="outputs", writable=False, any_order=True)
        target = as_tensor(out, argument="out", any_order=True)
        common_device([source], "outputs", self.context.device)
        common_device([target], "out", self.context.device)
        if source.shape is not None and target.shape is not None and source.shape != target.shape:
            raise InvalidArgumentError(f"out has shape {target.shape}, but outputs has {source.shape}")
        if not same_order(source, target):
            raise ValueError(f"out has strides {target.strides}, but outputs has {source.strides} (None: C order)")
        require_no_overlap([target], lambda _: "out", [source], lambda _: "outputs")
        with named_errors(src="outputs", dst="out"):
            self._handle.scale(tensor_array([source]), tensor_array([target]), target.stream or 0)
        mark_written([target])

    def unscale_(self, optimizer: Gradients) -> None:
        """Divides the gradients of `optimizer` by the scale in place and looks for inf and NaN.

        Raises BadStateError the second time between two updates, ValueError for gradients that are read-only.
        """
        grads = self._grads(optimizer)
        if grads.read_only:
            raise ValueError("the gradients are read-only; step() unscales them without writing")
        self._handle.unscale(grads._handle, self._adopt_stream(optimizer))
        grads._mark_written()

    def check(self, optimizer: Gradients) -> None:
        """Looks for inf and NaN in the gradients of `optimizer` without writing them. :meth:`step` does so unless
        you have."""
        self._handle.check(self._grads(optimizer)._handle, self._adopt_stream(optimizer))

    def check_range(self, optimizer: Gradients, first: int, count: int) -> None:
        """:meth:`check` of the `count` tensors of `optimizer` from `first` on, while backward produces the others.

        Raises InvalidArgumentError for a range that is not in the list.
        """
        limit = (1 << 63) - 1
        self._handle.check_range(self._grads(optimizer)._handle, integer("first", first, -limit, limit),
                                 integer("count", count, -limit, limit), self._adopt_stream(optimizer))

    def clip_grad_norm_(self, optimizer: Gradients, max_norm: float, norm_type: float = 2.0) -> None:
        """Limits the norm of all unscaled gradients of `optimizer` together to `max_norm` (>= 0).

        The step clips in its own pass; gradients that are already unscaled are clipped now. The report has the norm,
        for which alone `max_norm` may be inf. `norm_type` is 2 or inf. Raises InvalidArgumentError and ValueError for
        other values.
        """
        grads = self._grads(optimizer)
        limit = real("max_norm", max_norm)
        # The library's limit is finite. No norm is above the largest.
        self._handle.clip_grad_norm(grads._handle, sys.float_info.max if limit == math.inf else limit,
                                    norm_code(norm_type), self._adopt_stream(optimizer))
        grads._mark_written()

    def clip_grad_value_(self, optimizer: Gradients, clip_value: float) -> None:
        """Clamps the elements of the unscaled gradients of `optimizer` to ``[-clip_value, clip_value]``.

        The step clamps in its own pass; gradients that are already unscaled are clamped now. Raises
        InvalidArgumentError for a negative value.
        """
        grads = self._grads(optimizer)
        self._handle.clip_grad_value(grads._handle, real("clip_value", clip_value), self._adopt_stream(optimizer))
        grads._mark_written()

    def step(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> None:
        """Unscales, clips and applies the gradients of `optimizer` in one pass, or skips it if one is inf or NaN.

        Does not wait for a CUDA device. Raises TypeError for another package's optimizer, BadStateError for a second
        step before :meth:`update`, InvalidArgumentError for a missing gradient, and RuntimeError for `args` or
        `kwargs`, such as a closure.
        """
        if args or kwargs:
            raise RuntimeError("step() takes the optimizer alone; closures are not supported")
        stream = self._prepare_step(optimizer)
        self._handle.step(optimizer._handle, stream)
        optimizer._after_step()

    def step_slice(self, optimizer: Optimizer, max_bytes: int) -> int:
        """The next slice of :meth:`step` of `optimizer`, for programs with a frame rate: the bytes that are left, or 0.

        A slice reads and writes at most `max_bytes`, but at least one chunk of up to 65536 elements. In between, leave
        the arrays alone; other calls with the optimizer raise BadStateError, but :meth:`step` takes the rest at once.
        """
        stream = self._prepare_step(optimizer)
        left = self._handle.step_slice(optimizer._handle, integer("max_bytes", max_bytes, 1, (1 << 63) - 1), stream)
        optimizer._after_step()
        return int(left)

    def should_step(self, grads: TensorList) -> bool:
        """For your own optimizer: whether to step, that is, whether `grads` have no inf or NaN. Blocks.

        Your optimizer divides by the scale itself unless you called :meth:`unscale_`.
        """
        return bool(self._handle.should_step(self._grads(grads)._handle, self._adopt_stream(grads)))

    def update(self, new_scale: Any = None) -> None:
        """Ends the iteration: backs the scale off if an overflow was found, else counts a clean step and may grow.

        `new_scale`, a number or an array of one, replaces the scale instead. Raises BadStateError if nothing was
        checked, InvalidArgumentError unless `new_scale` is finite and > 0. Does not wait for a CUDA device.
        """
        self._iteration += 1
        if new_scale is None:
            self._handle.update(self.stream)
            if self._scale_use is not None:
                self._scale_use.updated()
        else:
            one = new_scale.item() if getattr(new_scale, "size", None) == 1 else new_scale
            self._handle.set_scale(real("new_scale", one, FLOAT32_MAX), self.stream)
            self._scale_use = None

    def step_and_update(self, optimizer: Optimizer) -> None:
        """:meth:`step` of `optimizer` and :meth:`update` in one call, with the errors of both."""
        stream = self._prepare_step(optimizer)
        self._handle.step_and_update(optimizer._handle, stream)
        self._iteration += 1
        if self._scale_use is not None:
            self._scale_use.updated()
        optimizer._after_step()

    def _prepare_step(self, optimizer: Optimizer) -> int:
        if not isinstance(optimizer, Optimizer):
            raise _no_optimizer(optimizer, "one of gradscaler's. For one of your own ask should_step() with a"
                                           " TensorList of its gradients")
        grads = optimizer.grads
        if self._scale_use is not None:
            self._require_new_gradients(self._scale_use)
        if grads._iteration is None:
            grads._iteration = self._iteration
        optimizer._before_step()
        return self._adopt_stream(optimizer)

    def _grads(self, value: Any) -> TensorList:
        grads = value._gradients() if isinstance(value, Optimizer) else value
        if not isinstance(grads, TensorList):
            raise _no_optimizer(value)
        if self._scale_use is not None:
            self._require_new_gradients(self._scale_use)
        # A list may have been made of temporaries for this iteration, but not for the next one.
        if grads._iteration is None:
            grads._iteration = self._iteration
        if grads is value:
            uses = abs(self._iteration - grads._iteration)
            grads._refresh(gradients=uses != 0, uses=uses)
        return grads

    def _require_new_gradients(self, use: ScaleUse) -> None:
        if use.has_old_gradients() and self.is_enabled():
            raise BadStateError(OLD_GRADIENTS)

    def discard(self, optimizer: Gradients | None = None) -> None:
        """Forgets what was done with the gradients of `optimizer` since the last update, of all lists by default.

        For aborted iterations. The scale and the gradients stay as they are.
        """
        grads = _list_of(optimizer)
        self._handle.discard(None if grads is None else grads._handle)

    def _adopt_stream(self, optimizer: Gradients) -> int:
        """The stream of a call that names gradients. Those of this scaler's device give it theirs, once for all."""
        stream = optimizer._stream
        if optimizer.context.device != self.context.device:
            return stream
        if self._has_stream and stream != self._stream and self.context.device != "cpu":
            raise InvalidArgumentError(f"the gradients are worked on in stream {stream:#x}, but this scaler works in"
                                       f" {self.stream:#x}: two streams are not ordered; set optimizer.stream, or"
                                       " scaler.stream once the other has done its work")
        self._has_stream = True
        self._stream = stream
        return stream

    @property
    def stream(self) -> int:
        """CUDA stream of calls without gradients, such as update(): at first that of the first gradients on its device.

        Finish the work in the old stream before you set another.
        """
        return self._stream

    @stream.setter
    def stream(self, stream: int) -> None:
        self._stream = stream_number(stream)
        self._has_stream = True

    def set_reducer(self, reduce: reducers.Reducer | None) -> None:
        """Joins the checks of several ranks: if one has an inf or NaN all skip, and clipping uses the norm over all.

        `reduce(values)` replaces float64 values by their sums over the ranks, in place: a writable memoryview, or on a
        CUDA device a :class:`gradscaler.reducers.Sums`. :mod:`gradscaler.reducers` has those for torch.distributed and
        mpi4py. Every rank calls it equally often in the same order. If it raises, the call raises CallbackError with
        that cause, and the gradients can be checked again. KeyboardInterrupt and SystemExit pass through. None removes
        the reducer. Raises BadStateError between a check and the update.
        """
        if reduce is None:
            self._handle.set_reducer(None)
            self._reduce = None
            return
        if not callable(reduce):
            raise TypeError(f"reduce is {reduce!r}; it must be callable or None")
        given, device = reduce, self.context.device

        def call(address: int, count: int, stream: int) -> None:
            reducers.call(given, address, count, stream, device)

        self._handle.set_reducer(call)
        # Held here; the one before may go only now.
        self._reduce = call

    # Looking at it.

    def get_scale(self) -> float:
        """The scale, 1.0 if disabled. Blocks on a CUDA device."""
        if self._scale_use is not None:
            self._scale_use.told()
        return float(self._handle.get_scale(self.stream))

    def is_enabled(self) -> bool:
        """Returns whether the scaler was enabled at creation."""
        return bool(self._handle.is_enabled())

    def report(self, optimizer: Gradients | None = None) -> Report:
        """The scaler's state, and what the last check of the gradients of `optimizer` found; of all lists by default.
        Blocks.

        With ``floor_action="error"`` it raises ScaleFloorError at the floor, and with ``spike_action="error"``
        SpikesError when ``spike_patience`` runs out; their ``report`` has the report.
        """
        grads = _list_of(optimizer)
        if grads is None:
            return read_report(self._handle, None, self.stream)
        return read_report(self._handle, grads._handle, self.stream, grads.names)

    def history(self) -> list[HistoryEntry]:
        """The newest updates, oldest first, as many as `history_capacity`. Blocks."""
        return history_of(self._handle, self.stream)

    @property
    def device_words(self) -> dict[str, int]:
        """Addresses of the scaler's device scalars, for your own kernels. Valid as long as the scaler."""
        found = native.DeviceState()
        self._handle.device_state(None, found)
        if self._scale_use is None:
            self._scale_use = ScaleUse()
        self._scale_use.gave_address()
        return {name: getattr(found, name)
                for name in ("scale", "inv_scale", "growth_tracker", "hysteresis_tracker")}

    # Options.

    @property
    def options(self) -> dict[str, Any]:
        """All options, as the constructor takes them."""
        return _policy.describe(self._native_options())

    def _native_options(self) -> Any:
        found = native.ScalerOptions()
        self._handle.get_options(found)
        return found

    def set_options(self, **changes: Any) -> None:
        """Changes options: `changes` are the constructor's arguments.

        ``init_scale``, ``enabled`` and ``history_capacity`` are fixed. Raises InvalidArgumentError for these and for
        values out of range, TypeError for an unknown option. On error nothing changes.
        """
        found = self._native_options()
        _policy.apply(found, changes)
        with named_errors():
            self._handle.set_options(found, self.stream)

    def get_growth_factor(self) -> float:
        """The factor by which the scale grows."""
        return float(self._handle.get_growth_factor())

    def set_growth_factor(self, new_factor: float) -> None:
        """Sets it to `new_factor`, which must be > 1, else InvalidArgumentError."""
        with named_errors():
            self._handle.set_growth_factor(real("new_factor", new_factor), self.stream)

    def get_backoff_factor(self) -> float:
        """The factor by which the scale is lowered on overflow."""
        return float(self._handle.get_backoff_factor())

    def set_backoff_factor(self, new_factor: float) -> None:
        """Sets it to `new_factor`, which must be in (0, 1), else InvalidArgumentError."""
        with named_errors():
            self._handle.set_backoff_factor(real("new_factor", new_factor), self.stream)

    def get_growth_interval(self) -> int:
        """Clean steps between growths."""
        return int(self._handle.get_growth_interval())

    def set_growth_interval(self, new_interval: int) -> None:
        """Sets it to `new_interval`, which must be >= 1, else InvalidArgumentError."""
        interval = integer("new_interval", new_interval, *_INT32)
        with named_errors():
            self._handle.set_growth_interval(interval, self.stream)

    # Checkpoints.

    def state_dict(self) -> dict[str, Any]:
        """PyTorch's keys, and ours under ``"gradscaler"``; empty if disabled. Both load it. Blocks."""
        if not self.is_enabled():
            return {}
        state = native.ScalerState()
        self._handle.get_state(state, self.stream)
        found: dict[str, Any] = {key: getattr(state, key.lstrip("_")) for key in _TORCH_KEYS}
        found["gradscaler"] = {key: getattr(state, key) for key in _COUNTERS}
        return found

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restores `state_dict`, of :meth:`state_dict` or of ``torch.amp.GradScaler``. Blocks.

        Raises ValueError and TypeError naming the entry that is missing or wrong, and RuntimeError for an empty one;
        nothing changes then.
        """
        if not self.is_enabled():
            return
        if state_dict is not None and not hasattr(state_dict, "keys"):
            raise TypeError(f"state_dict is {type(state_dict).__name__}; it must be a mapping")
        if not state_dict:
            raise RuntimeError("The source state dict is empty, possibly because it was saved "
                               "from a disabled instance of GradScaler.")
        missing = [key for key in _TORCH_KEYS if key not in state_dict]
        if missing:
            raise ValueError(f"the state dict has no {', '.join(map(repr, missing))}")
        state = native.ScalerState()
        for key in _TORCH_KEYS:
            argument, value = f"state_dict[{key!r}]", state_dict[key]
            setattr(state, key.lstrip("_"), integer(argument, value, *_INT32) if key in _INTEGERS else real(
                argument, value, FLOAT32_MAX if key == "scale" else math.inf))
        extra = state_dict.get("gradscaler")
        if extra is None:
            state.hysteresis_tracker = self.options["hysteresis"]
        elif not hasattr(extra, "keys"):
            raise TypeError(f"state_dict['gradscaler'] is {type(extra).__name__}; it must be a mapping")
        else:
            for key in _COUNTERS:
                if key not in extra:
                    raise ValueError(f"the state dict has no ['gradscaler'][{key!r}]")
                bounds = (0, (1 << 63) - 1) if key in ("updates", "skipped", "spikes") else _INT32
                setattr(state, key, integer(f"state_dict['gradscaler'][{key!r}]", extra[key], *bounds))
        with named_errors(_STATE_FIELDS):
            self._handle.set_state(state, self.stream)
        self._scale_use = None

    def __getstate__(self) -> dict[str, Any]:
        if self._reduce is not None:
            raise TypeError("this GradScaler holds a reducer and cannot be pickled; pickle its state_dict()")
        return {"device": self.context.device, "options": self.options, "state": self.state_dict()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["device"], **state["options"])  # type: ignore[misc]
        if state["state"]:
            self.load_state_dict(state["state"])

    def __repr__(self) -> str:
        if self.closed:
            return "<gradscaler.GradScaler closed>"
        return f"<gradscaler.GradScaler scale={self.get_scale():g}{'' if self.is_enabled() else ' disabled'}>"


def norm_code(norm_type: float) -> int:
    """The library's number of a norm."""
    try:
        return int(_NORMS[float(norm_type)])
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"norm_type is {norm_type!r}; it must be 2 or inf") from None


def _list_of(optimizer: Gradients | None) -> TensorList | None:
    grads = optimizer.grads if isinstance(optimizer, Optimizer) else optimizer
    if grads is not None and not isinstance(grads, TensorList):
        raise _no_optimizer(optimizer)
    return grads


def _no_optimizer(value: Any, expected: str = "an optimizer of gradscaler's or a TensorList") -> TypeError:
    if hasattr(value, "register_step_post_hook"):
        module = type(value).__module__.partition("._")[0]
        module = "torch.optim" if module.startswith("torch.optim.") else module
        return TypeError(f"optimizer is {module}.{type(value).__name__}, one of PyTorch's kind; use"
                         " gradscaler.torch.GradScaler with it")
    return TypeError(f"optimizer is {type(value).__name__}; it must be {expected}")
