"""Jars of a server, collected once by the Ivy jar inside pyspark: no Maven, no container."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path

import pyspark

from tests.support.servers.process import Missing, cache_dir, launcher

MODULE = """\
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
<info organisation="weir" module="{name}-of-tests"/>
<configurations><conf name="default"/></configurations><dependencies>
{dependencies}</dependencies></ivy-module>
"""


def jars(name: str, dependencies: str) -> Path:
    """The folder of the jars of some `<dependency>` elements; `name` says of what."""
    home = cache_dir(name)
    lib, complete = home / "lib", home / "lib" / ".complete"
    with (home / "lock").open("w") as lock:  # two test runs may ask at the same time
        fcntl.flock(lock, fcntl.LOCK_EX)
        if complete.exists():
            return lib
        module = home / "ivy.xml"
        module.write_text(MODULE.format(name=name, dependencies=dependencies))
        (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
        pattern = f"{lib}/[artifact]-[revision](-[classifier]).[ext]"
        done = subprocess.run(
            [
                *launcher(),
                "-jar",
                str(ivy),
                "-ivy",
                str(module),
                "-confs",
                "default",
                "-cache",
                str(home / "ivy-cache"),
                "-retrieve",
                pattern,
            ],
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        if done.returncode:
            raise Missing(f"cannot collect the jars of {name}\n{done.stdout[-2000:]}")
        complete.touch()
        shutil.rmtree(home / "ivy-cache", ignore_errors=True)
    return lib
