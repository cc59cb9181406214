# SPDX-License-Identifier: Apache-2.0
"""Learning rate schedules that do not advance when the step of the optimizer was skipped."""

from __future__ import annotations

from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]


class AppliedLR(torch.optim.lr_scheduler.LRScheduler):  # type: ignore[misc, unused-ignore]
    """A scheduler whose ``step`` does nothing unless the optimizer has applied one since the last call.

    `scheduler` is any of ``torch.optim.lr_scheduler``, else TypeError; its optimizer may be one of PyTorch's or of this
    package, and be stepped by any GradScaler or by none. If the optimizer decides on a CUDA device whether to skip
    (``fused=True``, or one of this package), ``step`` waits for the device. The state dict is that of `scheduler`.

    Not for ``Accelerator.prepare``, which steps a schedule once for each process and skips by itself: pass `scheduler`.
    """

    def __init__(self, scheduler: Any) -> None:
        if not hasattr(getattr(scheduler, "optimizer", None), "register_step_post_hook"):
            raise TypeError(f"scheduler is {type(scheduler).__module__}.{type(scheduler).__name__}; it must be a"
                            " scheduler of torch.optim.lr_scheduler, over an optimizer of torch.optim or"
                            " gradscaler.torch")
        # PyTorch's constructor would take the first step.
        self.scheduler = scheduler
        self.optimizer = scheduler.optimizer
        # Of the steps taken since the last call: found_inf of the one that found least; True if one had none.
        self._taken: Any = None
        self._hook = self.optimizer.register_step_post_hook(self._after_step)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_hook"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        # Copies of optimizers have no hooks.
        self._hook = self.optimizer.register_step_post_hook(self._after_step)

    @property
    def _is_accelerate_prepared(self) -> bool:
        """Asked by Accelerate, before it wraps a schedule."""
        raise TypeError("an AppliedLR cannot be prepared by Accelerate, which steps a schedule once for each process;"
                        " prepare its `scheduler`, or call step() of the AppliedLR yourself")

    def _after_step(self, optimizer: Any, *_: Any) -> None:
        found = getattr(optimizer, "found_inf", None)
        if found is None or self._taken is True:
            self._taken = True
        else:
            # A plain 0 if there were no gradients.
            found = torch.as_tensor(found)
            self._taken = found if self._taken is None else torch.minimum(self._taken, found)

    def _initial_step(self) -> None:
        raise TypeError("an AppliedLR cannot be one of the schedules of a SequentialLR; give it those themselves, and"
                        " make the AppliedLR of the SequentialLR")

    def step(self, *args: Any, **kwargs: Any) -> None:
        """``scheduler.step(*args, **kwargs)``, if a step was applied."""
        taken, self._taken = self._taken, None
        if taken is True or (taken is not None and not bool(taken)):
            self.scheduler.step(*args, **kwargs)

    def get_last_lr(self) -> Any:
        """That of `scheduler`."""
        return self.scheduler.get_last_lr()

    def get_lr(self) -> Any:
        """That of `scheduler`."""
        return self.scheduler.get_lr()

    def state_dict(self) -> dict[str, Any]:
        """That of `scheduler`, so that one with and one without this load each other's."""
        return dict(self.scheduler.state_dict())

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads `state_dict`, of :meth:`state_dict` here or of a scheduler of this kind without it."""
        self.scheduler.load_state_dict(state_dict)

    def __repr__(self) -> str:
        return f"gradscaler.torch.AppliedLR({self.scheduler!r})"

    def __getattr__(self, name: str) -> Any:
        if name == "scheduler":
            raise AttributeError(name)
        return getattr(self.scheduler, name)
