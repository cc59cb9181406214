#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/setup installs no package of the system before it has said how, and asks where there is a terminal.

  setup_test.py SOURCE

Runs the script with one tool in its table, which is missing, and with stand-ins for apt, sudo and id.
"""
import os
import pathlib
import pty
import shutil
import subprocess
import sys
import tempfile

TOOLS = "core | has frobnicate | frobnicate-tools |\n"
COMMAND = "apt-get install --no-install-recommends frobnicate-tools"
STAND_INS = {
    "apt-get": 'echo "$*" >>"$LOG"\n[[ " $* " != *" install "* ]] || cp "$0" "${0%/*}/frobnicate"\n',
    "apt-cache": 'echo "  Candidate: 1.0"\n',
    "id": 'echo "$TEST_USER"\n',
    # Without -n it asks for a password, which is wrong; $SUDO=free asks for none.
    "sudo": '[ "$SUDO" = free ] || exit 1\n[ "$1" != -n ] || shift\n"$@"\n',
}


def run(source, *arguments, user="0", sudo="", answer=None, ci=None):
    """Output of the script, and what apt was called with. `answer` is typed on a terminal."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for part, text in (("scripts/setup", None), ("packaging/tools.txt", TOOLS)):
            (folder / part).parent.mkdir()
            if text is None:
                shutil.copy(source / part, folder / part)
            else:
                (folder / part).write_text(text)
        (folder / "bin").mkdir()
        for stand_in, text in STAND_INS.items():
            (folder / "bin" / stand_in).write_text("#!/usr/bin/env bash\n" + text)
            (folder / "bin" / stand_in).chmod(0o755)
        log = folder / "log"
        log.touch()
        environment = {"PATH": f"{folder}/bin:{os.environ['PATH']}", "LOG": str(log), "TEST_USER": user, "SUDO": sudo}
        if ci:
            environment["CI"] = ci
        command = [str(folder / "scripts/setup"), *arguments, "core"]
        if answer is None:
            done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, timeout=60)
            return done.stdout, log.read_text()
        controller, terminal = pty.openpty()
        with subprocess.Popen(command, env=environment, stdin=terminal, stdout=terminal, stderr=terminal) as process:
            os.close(terminal)
            os.write(controller, answer.encode() + b"\n")
            said = b""
            try:
                while part := os.read(controller, 4096):
                    said += part
            except OSError:  # the other end is closed
                pass
            process.wait(60)
        return said.decode().replace("\r\n", "\n"), log.read_text()


def main():
    source = pathlib.Path(sys.argv[1])
    installs = "install -y --no-install-recommends frobnicate-tools"

    for options in ({}, {"ci": "true"}, {"user": "1000", "sudo": "free"}, {"answer": ""}, {"answer": "y"},
                    {"answer": "y", "user": "1000", "sudo": "free"}):
        said, called = run(source, **options)
        assert COMMAND in said and installs in called, (options, said, called)
        assert ("sudo apt-get" in said) == ("user" in options), (options, said)
        assert ("run it now?" in said) == ("answer" in options), (options, said)
    said, called = run(source, "--yes", answer="n")
    assert installs in called and "run it now?" not in said, (said, called)

    for options, why in (({"answer": "n"}, "as you asked"),
                         ({"answer": "no", "user": "1000", "sudo": "free"}, "as you asked"),
                         ({"user": "1000"}, "sudo did not let us"),
                         ({"user": "1000", "answer": "y"}, "sudo did not let us")):
        said, called = run(source, **options)
        assert called == "" and why in said and said.count(COMMAND) == 2, (options, said, called)
    print("setup asks")


if __name__ == "__main__":
    main()
