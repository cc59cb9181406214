#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks a NuGet package as `dotnet pack` and nuget.org would, and that CMake's recipe and the project's say the same.

Usage: check_package.py <nupkg> <csproj> <frameworks that must be there...>
"""
import pathlib
import platform
import re
import sys
import xml.etree.ElementTree as xml
import zipfile

NUSPEC = "{http://schemas.microsoft.com/packaging/2013/05/nuspec.xsd}"
TYPES = "{http://schemas.openxmlformats.org/package/2006/content-types}"
RELATIONSHIPS = "{http://schemas.openxmlformats.org/package/2006/relationships}"
MANIFEST = "http://schemas.microsoft.com/packaging/2010/07/manifest"
# Of the elements that the schema has; those without which NuGet refuses a package.
REQUIRED = {"id", "version", "authors", "description"}
KNOWN = REQUIRED | {"license", "projectUrl", "dependencies"}
# Names of systems and processors in .NET.
SYSTEM = {"linux": "linux", "darwin": "osx", "win32": "win"}[sys.platform]
RID = SYSTEM + "-" + {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}[platform.machine().lower()]
LIBRARY = {"linux": "libgradscaler_csharp.so", "osx": "libgradscaler_csharp.dylib", "win": "gradscaler_csharp.dll"}


def main(nupkg, csproj, *frameworks):
    project = pathlib.Path(csproj).read_text(encoding="utf-8")
    prop = dict(re.findall(r"<(\w+)>([^<]*)</\1>", project))
    assert pathlib.Path(nupkg).name == f"{prop['PackageId']}.{prop['Version']}.nupkg", nupkg
    with zipfile.ZipFile(nupkg) as package:
        assert package.testzip() is None
        names = [name for name in package.namelist() if not name.endswith("/")]
        assert len(names) == len({name.lower() for name in names}), names
        read = {name: package.read(name) for name in names}

    # Every part has a type, and the relationship leads to the only nuspec.
    types = xml.fromstring(read["[Content_Types].xml"])
    extensions = {entry.get("Extension") for entry in types.iter(TYPES + "Default")}
    parts = {entry.get("PartName") for entry in types.iter(TYPES + "Override")}
    for name in set(names) - {"[Content_Types].xml"}:
        assert name.rpartition(".")[2] in extensions or "/" + name in parts, f"{name} has no type"
    assert parts <= {"/" + name for name in names}, parts
    targets = [entry.get("Target") for entry in xml.fromstring(read["_rels/.rels"]).iter(RELATIONSHIPS + "Relationship")
               if entry.get("Type") == MANIFEST]
    assert targets == ["/Gradscaler.nuspec"], targets
    assert [name for name in names if name.endswith(".nuspec")] == ["Gradscaler.nuspec"], names

    # The metadata is the project's.
    metadata = xml.fromstring(read["Gradscaler.nuspec"]).find(NUSPEC + "metadata")
    elements = {element.tag.removeprefix(NUSPEC): element for element in metadata}
    assert len(elements) == len(metadata) and REQUIRED <= elements.keys() <= KNOWN, list(elements)
    for element, name in (("id", "PackageId"), ("version", "Version"), ("description", "Description"),
                          ("license", "PackageLicenseExpression"), ("projectUrl", "PackageProjectUrl")):
        assert elements[element].text == prop[name], (elements[element].text, prop[name])
    assert elements["license"].get("type") == "expression"

    # A group of dependencies for each framework, and an assembly with its documentation. No other folder in lib.
    groups = {group.get("targetFramework").lower().lstrip("."):
              {(entry.get("id"), entry.get("version")) for entry in group}
              for group in elements["dependencies"].iter(NUSPEC + "group")}
    wanted = {"netstandard2.0": set(re.findall(r'PackageReference Include="(.*?)" Version="(.*?)"', project)),
              "net8.0": set()}
    assert wanted.keys() == set(prop["TargetFrameworks"].split(";")), prop["TargetFrameworks"]
    assert groups == {framework: wanted[framework] for framework in frameworks}, groups
    folders = {f"lib/{framework}" for framework in frameworks}
    for folder in folders | {"mono"}:
        assert {f"{folder}/Gradscaler.dll", f"{folder}/Gradscaler.xml"} <= read.keys(), folder
        xml.fromstring(read[f"{folder}/Gradscaler.xml"])
    assert {str(pathlib.PurePath(name).parent) for name in names if name.startswith("lib/")} == folders, names

    # The native library, where .NET looks for it on this system, and the same names in the project.
    native = [f"runtimes/{RID}/native/{LIBRARY[SYSTEM]}"]
    assert [name for name in names if name.startswith("runtimes/")] == native, names
    for name, library in LIBRARY.items():
        pair = rf"<Rid>{name}-\$\(Architecture\)</Rid>\s*<Native>[^<]*/csharp/{library}</Native>"
        assert re.search(pair, project), pair
    assert '<None Include="$(Native)" Pack="true" PackagePath="runtimes/$(Rid)/native" />' in project
    print(f"{len(names)} files, {', '.join(frameworks)}, {RID}")


if __name__ == "__main__":
    main(*sys.argv[1:])
