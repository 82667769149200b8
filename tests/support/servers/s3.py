"""A real S3 server on loopback, S3Proxy over a folder: HTTP, signatures, conditional writes."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tests.support.servers import ivy
from tests.support.servers.process import Server, accepts, free_ports, java

VERSION = "4.1.0"
DEPENDENCY = f"""\
<dependency org="org.gaul" name="s3proxy" rev="{VERSION}" transitive="false" conf="default->master">
<artifact name="s3proxy" type="jar" ext="jar" m:classifier="jar-with-dependencies"/></dependency>
"""
PROPERTIES = """\
s3proxy.authorization=aws-v2-or-v4
s3proxy.identity={key}
s3proxy.credential={secret}
s3proxy.endpoint=http://127.0.0.1:{port}
jclouds.provider=filesystem-nio2
jclouds.filesystem.basedir={data}
"""
MAIN = "org.gaul.s3proxy.Main"
ROOT = Path(__file__).resolve().parents[3]
BUCKET, KEY, SECRET = "lake", "weir", "hush-of-the-store"


class S3:
    """One server with one bucket; `data` has its objects as files."""

    def __init__(self, folder: Path) -> None:
        (self.port,) = free_ports(1)
        self.data = folder / "data"
        (self.data / BUCKET).mkdir(parents=True)
        properties = folder / "s3proxy.conf"
        properties.write_text(
            PROPERTIES.format(key=KEY, secret=SECRET, port=self.port, data=self.data)
        )
        (jar,) = ivy.jars(f"s3proxy-{VERSION}", DEPENDENCY).glob("*.jar")
        self._server = Server(
            [*java(str(jar), MAIN, "-Xmx256m"), "--properties", str(properties)],
            folder / "s3proxy.log",
        )

    @property
    def endpoint(self) -> str:
        """The address."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def options(self) -> dict[str, str]:
        """`storage_options` of a configuration."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }

    def start(self) -> None:
        """Start the server and wait until it serves."""
        self._server.start(lambda _: accepts(self.port))

    def stop(self) -> None:
        """Stop it by its pid; its objects stay."""
        self._server.stop()


def connector() -> str:
    """The jars with which Spark reaches a store, those of the image, for --jars."""
    module = (ROOT / "conf/docker/s3a.ivy.xml").read_text()
    inside = module.partition("<dependencies>")[2].partition("</dependencies>")[0]
    folder = ivy.jars(f"s3a-{hashlib.sha256(inside.encode()).hexdigest()[:16]}", inside)
    return ",".join(str(path) for path in sorted(folder.glob("*.jar")))
