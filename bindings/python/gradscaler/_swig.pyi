# SPDX-License-Identifier: Apache-2.0
# The module that SWIG generates. It is private and untyped; the facade around it is what is typed.
from typing import Any

def __getattr__(name: str) -> Any: ...
