# SPDX-License-Identifier: Apache-2.0
"""The C interface by ctypes, from bindings/api.json: structs as classes, functions with their argument types, and the
enumerators, all by their names without gsc_ and GSC_."""
import ctypes
import json
import pathlib

INTERFACE = pathlib.Path(__file__).resolve().parents[2] / "bindings/api.json"


class CLibrary:
    TYPES = {"int32_t": ctypes.c_int32, "uint32_t": ctypes.c_uint32, "int64_t": ctypes.c_int64, "float": ctypes.c_float,
             "double": ctypes.c_double, "gsc_status": ctypes.c_int32, "uint8_t": ctypes.c_uint8, "char": ctypes.c_char}

    def __init__(self, path, interface=INTERFACE):
        api = json.loads(pathlib.Path(interface).read_text(encoding="utf-8"))
        self.library = ctypes.CDLL(str(path))
        for item in (item for enum in api["enums"] for item in enum["items"]):
            setattr(self, item["name"].removeprefix("GSC_"), item["value"])
        for struct in api["structs"]:
            fields = [(field["name"], self.of(field["type"]) * field["elements"] if "elements" in field
                       else self.of(field["type"])) for field in struct["fields"]]
            setattr(self, struct["name"], type(struct["name"], (ctypes.Structure,), {"_fields_": fields}))
        for declared in api["functions"]:
            function = getattr(self.library, declared["name"])
            function.restype = {"gsc_status": ctypes.c_int32, "void": None}.get(declared["result"], ctypes.c_void_p)
            function.argtypes = [self.of(parameter["type"]) for parameter in declared["parameters"]]
            setattr(self, declared["name"].removeprefix("gsc_"), function)
        self.message, self.build_info = self.library.gsc_error_get_message, self.library.gsc_library_get_build_info
        self.message.restype = self.build_info.restype = ctypes.c_char_p

    def of(self, kind):
        return self.TYPES.get(kind, ctypes.c_void_p)

    def codes_of(self, init, options):
        """Every code that an init function takes, such as the kinds of optimizers and the presets of a scaler."""
        some, code = self.struct(options), 0
        while getattr(self, init)(ctypes.byref(some), some.struct_size, code) == self.OK:
            code += 1
        return range(code)

    def must(self, status):
        if status != self.OK:
            raise AssertionError(f"status {status}: {self.message().decode()}")

    def struct(self, name, **values):
        result = getattr(self, name)(**values)
        if hasattr(result, "struct_size"):
            result.struct_size = ctypes.sizeof(result)
        return result
