# SPDX-License-Identifier: Apache-2.0
"""All generators. Part of scripts/gen-api."""
import gen_core
import gen_cpp
import gen_csharp
import gen_java
import gen_layout
import gen_pages
import gen_python
import gen_rust
import gen_swig
import gen_table


def files(api, root):
    """{path: text} of all files that follow from the interface."""
    found = {}
    for generator in (gen_table, gen_layout, gen_core, gen_cpp, gen_swig, gen_java, gen_csharp, gen_python, gen_rust,
                      gen_pages):
        found |= generator.files(api, root)
    return found
