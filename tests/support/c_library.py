# SPDX-License-Identifier: Apache-2.0
"""The C interface by ctypes, read from gradscaler.h: structs as classes, functions with their argument types, and the
enumerators, all by their names without gsc_ and GSC_."""
import ctypes
import pathlib
import re

HEADER = pathlib.Path(__file__).resolve().parents[2] / "include/gradscaler/gradscaler.h"


class CLibrary:
    TYPES = {"int32_t": ctypes.c_int32, "uint32_t": ctypes.c_uint32, "int64_t": ctypes.c_int64, "float": ctypes.c_float,
             "double": ctypes.c_double, "gsc_status": ctypes.c_int32, "uint8_t": ctypes.c_uint8}

    def __init__(self, path, header=HEADER):
        text = re.sub(r"/\*.*?\*/|//[^\n]*|\\\n", " ", pathlib.Path(header).read_text(encoding="utf-8"), flags=re.S)
        self.library = ctypes.CDLL(str(path))
        for name, value in re.findall(r"\bGSC_(\w+) = (\d+)", text):
            setattr(self, name, int(value))
        for name, body in re.findall(r"struct (gsc_\w+) \{(.*?)\}", text, re.S):
            fields = []
            for kind, star, field, _, count in re.findall(r"([\w ]+?) ?(\*?)(\w+)(\[(\d+)\])?;", body):
                base = ctypes.c_char if kind == "char" else self.of(kind + star)
                fields.append((field, base * int(count) if count else base))
            setattr(self, name, type(name, (ctypes.Structure,), {"_fields_": fields}))
        for result, name, arguments in re.findall(r"GSC_API (gsc_status|void) (\w+)\((.*?)\);", text, re.S):
            function = getattr(self.library, name)
            function.restype = ctypes.c_int32 if result == "gsc_status" else None
            function.argtypes = [self.of(argument.strip().rsplit(" ", 1)[0] + "*" * ("*" in argument))
                                 for argument in arguments.split(",") if argument != "void"]
            setattr(self, name.removeprefix("gsc_"), function)
        self.message, self.build_info = self.library.gsc_error_get_message, self.library.gsc_library_get_build_info
        self.message.restype = self.build_info.restype = ctypes.c_char_p

    def of(self, kind):
        return self.TYPES.get(kind.strip(), ctypes.c_void_p)

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
