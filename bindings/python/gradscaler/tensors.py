# SPDX-License-Identifier: Apache-2.0
"""Lists of tensors: a plan over your arrays, made once and reused in every step; and what is in their elements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from . import _fields, torch_memory, trees
from ._native import FLOAT32_MAX, Streamed, native, real
from .arrays import (
    Arrays,
    as_number,
    as_tensor,
    as_tensors,
    common_device,
    common_stream,
    gradients_of,
    leaves_of,
    native_integers,
    tensor_array,
)
from .device import Context, DeviceLike, resolve_context
from .errors import InvalidArgumentError
from .memory import DTYPE_NAMES, DTYPES, Tensor, dtype_name, same_order, unreferenced
from .messages import counted, named_errors
from .state_formats import STORED

#: Number of bins of an exponent histogram, and the exponent of bin 0.
EXPONENT_BINS: int = native.EXPONENT_BINS
EXPONENT_MIN: int = native.EXPONENT_MIN


@dataclass(frozen=True)
class Diagnosis(_fields.TensorDiagnosis):
    """The diagnosis of one tensor."""

    #: Finite values by exponent: entry b counts ``floor(log2(|x|)) == b + EXPONENT_MIN``. Empty unless asked for.
    histogram: tuple[int, ...] = ()


@dataclass(frozen=True)
class Recommendation:
    """A loss scale, and the share (0..1) of the gradients that it would still flush to zero."""

    scale: float
    flushed: float


class TensorList(Streamed):
    """A validated plan over arrays of one device. The arrays are held, not copied.

    `arrays` is an array, several, a mapping from names to arrays, or nested ones. `names` replace these names in
    messages and reports. `dtype` is the type whose bits 16-bit integers hold. ``read_only=True`` also takes arrays that
    cannot be written, such as gradients that are only checked, diagnosed or stepped on. `device` is a context or a
    device's name, by default that of the arrays. `argument` is what messages call them.

    Raises ValueError and TypeError naming the array that cannot be used, InvalidArgumentError for overlap, misalignment
    and arrays that are worked on in different CUDA streams.
    """

    __slots__ = ("context", "read_only", "_tensors", "_names", "_leaves", "_dtype", "_iteration", "_rebinds",
                 "_next_count", "_handed_out", "_immutable", "_torch_indices")

    def __init__(self, arrays: Arrays | trees.Leaves, *, names: Sequence[str | None] | None = None,
                 dtype: object = None, read_only: bool = False, device: DeviceLike = None,
                 argument: str = "arrays") -> None:
        leaves = arrays if isinstance(arrays, trees.Leaves) else leaves_of(arrays, argument)
        tensors = as_tensors(leaves, dtype=dtype, writable=not read_only)
        found_names: list[str | None] = [name if leaves.named else None for name in leaves.names]
        if names is not None:
            found_names = list(names)
            if len(found_names) != len(tensors):
                raise ValueError(f"names has {counted(len(found_names), 'entry', 'entries')}, but {argument} has"
                                 f" {counted(len(tensors), 'tensor')}")
        for i, name in enumerate(found_names):
            _require_name(name, f"names[{i}]" if names is not None else f"the name of {leaves.label(i)}")
        self._stream = common_stream(tensors, leaves.label)
        #: The context that the list belongs to.
        self.context: Context = resolve_context(device, tensors[0].device if tensors else None)
        common_device(tensors, leaves, self.context.device)
        #: Whether there is an array that cannot be written.
        self.read_only: bool = any(tensor.readonly for tensor in tensors)
        # Shared with optimizers, which must hold the memory even when this list is closed.
        self._tensors: list[Tensor] = tensors
        self._names = found_names
        # Without the arrays, whose memory is held and no more: their owners may let go of them.
        self._leaves = trees.Leaves(leaves.argument, leaves.names, leaves.paths, [None] * len(tensors), leaves.named)
        self._dtype = dtype
        # That of the scaler which it was first used in.
        self._iteration: int | None = None
        # How often it was pointed at other arrays, by which its users know whether they have seen these before.
        self._rebinds = 0
        # After how many uses references to the arrays are counted next.
        self._next_count = 1
        # Whether a tensor was handed out, through whose address it can be written.
        self._handed_out = False
        self._immutable = _first_immutable(tensors)
        # Those of PyTorch, whose memory may be replaced and which count writes.
        self._torch_indices = _torch_indices_of(tensors)
        with named_errors(tensors=leaves):
            handle = native.TensorList(self.context._handle, tensor_array(tensors, found_names))
        # A call that is still running when the list is closed holds the handle, and so the memory that it works on.
        handle.keep = tensors
        super().__init__(handle)

    def __len__(self) -> int:
        return len(self._tensors)

    def __getitem__(self, index: int) -> Tensor:
        self._handed_out = True
        return self._tensors[index]

    def __iter__(self) -> Iterator[Tensor]:
        self._handed_out = True
        return iter(self._tensors)

    @property
    def names(self) -> list[str | None]:
        """The tensors' names."""
        return list(self._names)

    def _labels(self, argument: str) -> trees.Leaves:
        """The tensors as they were passed: keys or indices, and what messages call them, `argument` by default."""
        own = self._leaves
        called = argument if own.argument == "arrays" else own.argument
        return trees.Leaves(called, own.names, own.paths, list(self._tensors), own.named)

    def _named_leaves(self, argument: str) -> trees.Leaves:
        """:meth:`_labels` of `argument`, but without keys `names` are the keys, if every tensor has its own."""
        if self._leaves.named or not all(self._names) or len(set(self._names)) < len(self._names) or not self._names:
            return self._labels(argument)
        names = [str(name) for name in self._names]
        return trees.Leaves(argument, names, [f"[{name!r}]" for name in names], list(self._tensors), True)

    def rebind(self, arrays: Arrays, *, dtype: object = None) -> None:
        """Points the list at other `arrays` of the same names, shapes and dtypes, such as a step's new gradients.

        `dtype` is the constructor's, by default unchanged. Raises BadStateError between a check and the update that
        ends the iteration, and the constructor's errors; the list then keeps its arrays.
        """
        leaves = leaves_of(arrays, "arrays")
        own = self._named_leaves("the list") if leaves.named else self._labels("the list")
        leaves = trees.reorder(leaves, trees.pair(leaves, own))
        self._set_pointers(leaves, as_tensors(leaves, dtype=dtype or self._dtype, writable=not self.read_only))
        self._immutable = _first_immutable(self._tensors)
        self._iteration = None
        self._rebinds += 1
        self._next_count = 1

    def set_device_factor(self, factor: Any) -> None:
        """Multiplies gradients by a number besides unscaling, such as 1 over the number of tokens; None: by none.

        `factor` is one float32 on the list's device, which is read at the first check of every iteration, or at a step
        that does not check; on the CPU also a number. Clipping, reports and steps see gradients divided by the scale
        and times the factor, without a pass of their own. A factor that is negative, inf or NaN fails that call with
        InvalidArgumentError on the CPU, and skips the step on other devices. Raises BadStateError between a check and
        the update that ends the iteration, TypeError for what is not one float32.
        """
        word = None if factor is None else as_number(factor, "factor", self.context.device)
        self._handle.set_device_factor(0 if word is None else word.address)
        self._handle.factor = word  # which holds its memory

    def set_device_norms(self, norms: Any) -> None:
        """Keeps the L2 norm of every gradient in `norms`, float64 with an element for each tensor; None: not kept.

        Each check of a scaler writes them, from the sums that it makes anyway: norms of the unscaled gradients before
        clipping, NaN or inf for a tensor with a NaN or inf, 0 for an absent one. ``dict(zip(list.names, norms))`` has
        them by name. A disabled scaler checks only to clip. Raises BadStateError between a check and the update that
        ends the iteration, TypeError for what is not such an array, ValueError for one that cannot be written.
        """
        found = None
        if norms is not None:
            found = as_tensor(norms, argument="norms", writable=True)
            if found.dtype != "float64" or found.count != len(self):
                raise TypeError(f"norms holds {found.count} x {found.dtype}; it must be {len(self)} x float64")
            common_device([found], "norms", self.context.device)
        self._handle.set_device_norms(0 if found is None else found.address, len(self))
        self._handle.norms = found

    def set_present(self, present: Sequence[bool] | None) -> None:
        """Sets which tensors of a list of gradients take part from now on.

        `present` has a truth value for each tensor; None: all take part. An absent tensor counts as empty: it is
        neither read nor written, and its parameter, state and step count stay as they are. Raises InvalidArgumentError
        for another number of values, BadStateError between a check and the update that ends the iteration, and for a
        list of parameters, copies or state.
        """
        with named_errors(present=self._leaves):
            self._handle.set_present(None if present is None else native_integers(map(bool, present)), self.stream)

    def _set_pointers(self, leaves: trees.Leaves, tensors: list[Tensor]) -> None:
        common_device(tensors, leaves, self.context.device)
        for i, (new, old) in enumerate(zip(tensors, self._tensors, strict=True)):
            if (new.count, new.dtype) != (old.count, old.dtype) or None not in (new.shape, old.shape) and (
                    new.shape != old.shape):
                raise InvalidArgumentError(f"{leaves.label(i)} holds {_dtype_and_shape(new)}, but the list has"
                                           f" {_dtype_and_shape(old)}")
            if not same_order(new, old):
                raise InvalidArgumentError(f"{leaves.label(i)} has strides {new.strides}, but the list has"
                                           f" {old.strides} (None: C order)")
        with named_errors(data=leaves):
            self._handle.set_pointers(tensor_array(tensors), self.stream)
        self._tensors[:] = tensors
        self._torch_indices = _torch_indices_of(tensors)

    def _refresh(self, *, gradients: bool = False, uses: int = 0) -> None:
        """Follows PyTorch's tensors whose memory was replaced (``p.data = ...``) since the last call.

        With ``gradients=True`` it is an InvalidArgumentError if nothing else holds a tensor any more, as after
        ``zero_grad()``, which sets gradients to None: new ones would not be seen. With `uses`, the number of steps that
        the arrays were used in, the same goes for arrays that cannot be written, and for those of other libraries
        where references are counted: after 1, 2, 4, 8 uses and so on, since it takes longer than a step.
        """
        if uses:
            self._require_writers(uses)
        moved = {}
        for i in self._torch_indices:
            tensor = self._tensors[i]
            source = torch_memory.replaced_source(tensor)
            if source is not None:
                moved[i] = source
            elif gradients and torch_memory.is_unreferenced(tensor):
                raise InvalidArgumentError(
                    f"{self._leaves.label(i)} was freed by its owner, as zero_grad() does: gradients made since are not"
                    " seen; use an optimizer of gradscaler.torch, zero_grad(set_to_none=False), or rebind")
        if moved:
            self._set_pointers(self._leaves, [
                as_tensor(moved[i], argument=self._leaves.label(i), dtype=self._dtype, any_order=True,
                          writable=not self.read_only) if i in moved else tensor
                for i, tensor in enumerate(self._tensors)])

    def _mark_written(self) -> None:
        if self._torch_indices:
            torch_memory.mark_written(self._tensors[i] for i in self._torch_indices)

    def _unreferenced(self, uses: int) -> list[int]:
        """The arrays to which there is no other reference, if it is time to count."""
        if uses < self._next_count:
            return []
        # No tensor may be in a variable meanwhile, which would hold it.
        found = [] if self._handed_out else unreferenced(self._tensors)
        if not found:
            self._next_count = 2 * uses
        return found

    def _require_writers(self, uses: int) -> None:
        remedy = "gradients made since are not seen; pass them to rebind() of the list, such as optimizer.grads"
        if self._immutable is not None:
            raise InvalidArgumentError(f"{self._leaves.label(self._immutable)} is immutable and was used in a step"
                                       f" before: {remedy}")
        for i in self._unreferenced(uses):
            raise InvalidArgumentError(f"{self._leaves.label(i)} was used in a step before and nothing else"
                                       f" holds it any more: {remedy}, or write them into the array that was passed")

    def _require_readers(self, uses: int) -> None:
        """InvalidArgumentError for arrays that no caller can read after a write, since nothing else holds them."""
        for i in self._unreferenced(uses):
            raise InvalidArgumentError(
                f"{self._leaves.label(i)} is held by nothing else: the result of the step would be lost;"
                " write new values into the array that was passed, or make an optimizer of the new arrays")

    def diagnose(self, *, histogram: bool = False) -> list[Diagnosis]:
        """Counts infs, NaNs, zeros and subnormals, a :class:`Diagnosis` for each tensor. Blocks.

        `histogram` fills in :attr:`Diagnosis.histogram`.
        """
        found, bins = self._diagnosed(), range(EXPONENT_BINS if histogram else 0)
        return [Diagnosis(**_fields.tensor_diagnosis_of(found.get(i)), name=name,
                          histogram=tuple(found.histogram(i, b) for b in bins)) for i, name in enumerate(self._names)]

    def recommend_scale(self, current_scale: float, *, dtype: object = None) -> Recommendation:
        """Recommends a loss scale for these gradients, which were taken at `current_scale`. Blocks.

        `dtype` is what gradients are computed in; by default the first tensor's. Raises InvalidArgumentError unless
        `current_scale` is finite and > 0.
        """
        name = dtype_name(dtype) if dtype is not None else self._tensors[0].dtype if self._tensors else "float16"
        scale = real("current_scale", current_scale, FLOAT32_MAX)
        found = self._diagnosed().recommend(scale, DTYPES[name])
        return Recommendation(found.scale, found.flushed)

    def _diagnosed(self) -> Any:
        self._refresh()
        return self._handle.diagnose(self.stream)

    def close(self) -> None:
        """Releases the list, and its arrays unless an optimizer still uses them."""
        super().close()
        self._tensors = []

    def __reduce__(self) -> Any:
        raise TypeError("a TensorList holds addresses and cannot be copied or pickled; make one of the arrays")

    def __repr__(self) -> str:
        return f"<gradscaler.TensorList {counted(len(self._tensors), 'tensor')}{' closed' if self.closed else ''}>"


def _torch_indices_of(tensors: Sequence[Tensor]) -> list[int]:
    return [i for i, tensor in enumerate(tensors) if tensor.source is not None]


def _gradients(arrays: Any, argument: str) -> TensorList:
    return arrays if isinstance(arrays, TensorList) else TensorList(gradients_of(arrays, argument), read_only=True)


def diagnose(arrays: Any, *, histogram: bool = False) -> list[Diagnosis]:
    """:meth:`TensorList.diagnose` with `histogram` of `arrays`, which may be a TensorList. Blocks.

    Parameters of PyTorch stand for their ``.grad``, if it is not None; to look at weights pass their ``detach()``.
    Raises what :class:`TensorList` raises.
    """
    return _gradients(arrays, "arrays").diagnose(histogram=histogram)


def recommend_scale(grads: Any, current_scale: float, *, dtype: object = None) -> Recommendation:
    """:meth:`TensorList.recommend_scale` of `grads`, arrays or a TensorList, with `current_scale` and `dtype`. Blocks.

    Parameters of PyTorch stand for their ``.grad``, if it is not None.
    """
    return _gradients(grads, "grads").recommend_scale(current_scale, dtype=dtype)


def native_tensor(tensor: Any, owner: Any, device: str, like: Tensor) -> Tensor:
    """A :class:`Tensor` for memory of `owner` that the library describes, with the shape and order of `like`.

    Where counts differ it has one dimension: a slot with numbers per tensor.
    """
    dtype = STORED.get(tensor.dtype) or DTYPE_NAMES[tensor.dtype]
    shape, strides = (like.shape, like.strides) if tensor.count == like.count else ((tensor.count,), None)
    return Tensor(tensor.data or 0, tensor.count, dtype, device, False, None, owner, shape, strides)


def _require_name(name: object, label: str) -> None:
    """TypeError and ValueError for what C takes for no name, or for another one."""
    if name is None:
        return
    if not isinstance(name, str):
        raise TypeError(f"{label} is {name!r}; it must be a string or None")
    if "\0" in name or any("\ud800" <= character <= "\udfff" for character in name):
        raise ValueError(f"{label} is {name!r}; it must not have zero characters or lone surrogates")


def _first_immutable(tensors: Sequence[Tensor]) -> int | None:
    return next((i for i, tensor in enumerate(tensors) if tensor.immutable), None)


def _dtype_and_shape(tensor: Tensor) -> str:
    return f"{tensor.dtype} of shape {tensor.shape}" if tensor.shape is not None else f"{tensor.count} x {tensor.dtype}"
