#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What Maven Central checks before it publishes, as far as it can be checked on files.

Usage: central.py <folder that `mvn deploy` has filled>. The signatures are verified if gpg is there (GNUPGHOME). Not
checked: that the namespace is ours and that the key is on a key server.
https://central.sonatype.org/publish/requirements/
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree
import zipfile

NS = {"m": "http://maven.apache.org/POM/4.0.0"}
REQUIRED = ["groupId", "artifactId", "version", "name", "description", "url", "licenses/license/name",
            "licenses/license/url", "developers/developer/name", "developers/developer/organization",
            "developers/developer/organizationUrl", "scm/connection", "scm/developerConnection", "scm/url"]


def problems(folder):
    """A sentence for everything that Central would refuse."""
    pom_file = next(folder.glob("*.pom"))
    pom = xml.etree.ElementTree.parse(pom_file).getroot()

    def text(path):
        return (pom.findtext("/".join("m:" + part for part in path.split("/")), namespaces=NS) or "").strip()

    for path in REQUIRED:
        if not text(path) or "${" in text(path):
            yield f"pom.xml has no {path}"
    if text("version").endswith("-SNAPSHOT"):
        yield "a snapshot"
    prefix = f"{text('artifactId')}-{text('version')}"
    for repositories in ("repositories", "pluginRepositories"):
        if pom.find("m:" + repositories, NS) is not None:
            yield f"pom.xml has {repositories}"
    for plugin in pom.iterfind(".//m:plugin", NS):
        version = plugin.findtext("m:version", namespaces=NS) or ""
        if not re.fullmatch(r"[\d.]+|\$\{[\w.]+\}", version):
            yield f"{plugin.findtext('m:artifactId', namespaces=NS)} is not pinned"

    names = [f"{prefix}.pom"] + [f"{prefix}{kind}.jar" for kind in ("", "-sources", "-javadoc")]
    natives = [path.name for path in folder.glob(f"{prefix}-natives-*.jar")]
    if not natives:
        yield "no natives"
    for name in names + natives:
        file = folder / name
        if not file.is_file():
            yield f"no {name}"
            continue
        if name.endswith(".jar") and not any(not entry.is_dir() for entry in zipfile.ZipFile(file).infolist()):
            yield f"{name} is empty"
        if shutil.which("gpg") and os.environ.get("GNUPGHOME"):
            yield from signature(file)


def signature(file):
    command = ["gpg", "--batch", "--quiet", "--verify", f"{file}.asc", str(file)]
    if subprocess.run(command, stderr=subprocess.DEVNULL).returncode != 0:
        yield f"{file.name} is not signed"


def main():
    poms = list(pathlib.Path(sys.argv[1]).rglob("*.pom"))
    found = [problem for pom in poms for problem in problems(pom.parent)]
    if len(poms) != 1:
        found.append(f"{len(poms)} artifacts")
    for problem in found:
        print("central:", problem)
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
