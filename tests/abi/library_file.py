# SPDX-License-Identifier: Apache-2.0
"""Reads the exports and the needed libraries of a shared library of Windows (PE, 64 bits) or macOS (Mach-O, 64 bits).

ELF is left to readelf and nm, which every Linux machine with a compiler has and which read nothing else.
"""
import pathlib
import struct


def format_of(path):
    """'elf', 'pe' or 'macho'."""
    with open(path, "rb") as file:
        magic = file.read(4)
    if magic[:2] == b"MZ":
        return "pe"
    return {b"\x7fELF": "elf", b"\xcf\xfa\xed\xfe": "macho"}[magic]


def read(path):
    """(exported names, needed libraries) of a library that is not ELF"""
    return (read_pe if format_of(path) == "pe" else read_macho)(path)


def _string(data, offset):
    return data[offset : data.index(b"\0", offset)].decode()


def read_pe(path):
    """(exported names, names of needed DLLs)"""
    data = pathlib.Path(path).read_bytes()
    header = struct.unpack_from("<I", data, 0x3C)[0]
    sections_count, optional_size = struct.unpack_from("<H12xH", data, header + 6)
    optional = header + 24
    if struct.unpack_from("<H", data, optional)[0] != 0x20B:
        raise ValueError(f"{path} is not of 64 bits")
    sections = [struct.unpack_from("<4I", data, optional + optional_size + 40 * i + 8) for i in range(sections_count)]

    def offset(address):
        for size, start, raw_size, raw in sections:
            if start <= address < start + max(size, raw_size):
                return address - start + raw
        raise ValueError(f"{path}: no section at {address:#x}")

    (exports, _), (imports, _) = struct.iter_unpack("<II", data[optional + 112 : optional + 128])
    names = set()
    if exports:
        count, table = struct.unpack_from("<I4xI", data, offset(exports) + 24)
        addresses = struct.unpack_from(f"<{count}I", data, offset(table))
        names = {_string(data, offset(address)) for address in addresses}
    needed, at = [], offset(imports) if imports else None
    while at is not None and (name := struct.unpack_from("<I", data, at + 12)[0]):
        needed.append(_string(data, offset(name)))
        at += 20
    return names, needed


def _macho_commands(data):
    at = 32
    for _ in range(struct.unpack_from("<I", data, 16)[0]):
        command, size = struct.unpack_from("<II", data, at)
        yield command, at
        at += size


def macho_identity(path):
    """(install name, folders searched for libraries, oldest macOS, whether it is signed, whether it is for arm64)"""
    data = pathlib.Path(path).read_bytes()
    name, folders, oldest, signed = None, [], None, False
    for command, at in _macho_commands(data):
        if command == 0xD:  # LC_ID_DYLIB
            name = _string(data, at + struct.unpack_from("<I", data, at + 8)[0])
        elif command == 0x8000001C:  # LC_RPATH
            folders.append(_string(data, at + struct.unpack_from("<I", data, at + 8)[0]))
        elif command == 0x32:  # LC_BUILD_VERSION
            version = struct.unpack_from("<I", data, at + 12)[0]
            oldest = f"{version >> 16}.{version >> 8 & 255}"
        elif command == 0x1D:  # LC_CODE_SIGNATURE
            signed = True
    return name, folders, oldest, signed, struct.unpack_from("<I", data, 4)[0] == 0x0100000C


def read_macho(path):
    """(exported names without their underscore, paths of needed libraries)"""
    data = pathlib.Path(path).read_bytes()
    names, needed = set(), []
    for command, at in _macho_commands(data):
        if command & 0x7FFFFFFF in (0xC, 0x18, 0x1F):  # LC_LOAD_DYLIB, _WEAK_, LC_REEXPORT_DYLIB
            needed.append(_string(data, at + struct.unpack_from("<I", data, at + 8)[0]))
        elif command == 0x2:  # LC_SYMTAB
            symbols, count, strings = struct.unpack_from("<3I", data, at + 8)
            for i in range(count):
                name, kind = struct.unpack_from("<IB", data, symbols + 16 * i)
                # External, defined, not private to the library, not of a debugger.
                if kind & 0x01 and kind & 0x0E and not kind & 0xF0:
                    names.add(_string(data, strings + name).removeprefix("_"))
    return names - {"__dso_handle", "_mh_dylib_header"}, needed  # of the linker, in every image
