# SPDX-License-Identifier: Apache-2.0
"""JAX and what is built on it without types: theirs are not complete enough to check against, or not there at all."""

from __future__ import annotations

import importlib
from typing import Any

jax: Any = importlib.import_module("jax")
jnp: Any = importlib.import_module("jax.numpy")
custom_partitioning: Any = importlib.import_module("jax.experimental.custom_partitioning").custom_partitioning
