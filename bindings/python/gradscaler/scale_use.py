# SPDX-License-Identifier: Apache-2.0
"""Whether gradients can be of a backward pass before the last update, as those of the second of two optimizers are if
``update()`` is called between their steps. They would be unscaled by the new scale."""

from __future__ import annotations

#: What is wrong with them, and what to do.
OLD_GRADIENTS = ("the gradients are of before the last update(): scale() has not been called since, and the scale may"
                 " be another; step all optimizers of a backward pass, then call update() once")


class ScaleUse:
    """What a program has done with the scale since the last update.

    One that scaled its losses in the iteration before, and since the update has neither scaled nor asked for the scale,
    has not computed new gradients. Nothing is known of one that reads the scale on the device.
    """

    __slots__ = ("_is_scaled", "_is_told", "_is_untold", "_was_scaled")

    def __init__(self) -> None:
        self._is_scaled = self._was_scaled = self._is_untold = False
        self._is_told = True

    def scaled(self) -> None:
        self._is_scaled = self._is_told = True

    def told(self) -> None:
        """The program has the scale, or has set it."""
        self._is_told = True

    def gave_address(self) -> None:
        """The device may read it at any time."""
        self._is_untold = True

    def updated(self) -> None:
        self._was_scaled, self._is_scaled, self._is_told = self._is_scaled, False, False

    def has_old_gradients(self) -> bool:
        return self._was_scaled and not self._is_told and not self._is_untold
