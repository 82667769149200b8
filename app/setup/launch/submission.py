"""The line of spark-submit that runs a command, and its environment."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

from app.setup.launch.home import EVERYWHERE, ROOT, Home, say
from app.setup.launch.line import Line, joined
from app.stream.jars import IN_SPARK, coordinates

MAIN = ROOT / "app/main.py"
WORKER_CORES = "./numba-cache"
COMPILED_AHEAD = ("run", "demo")
SENT_CONFIG = "weir-config.yaml"


@dataclass
class Submission:
    """Builds the line; `prepares` is False for a dry run, which makes no file."""

    line: Line
    home: Home
    prepares: bool
    environment: dict[str, str] = field(default_factory=dict)
    own: list[str] = field(default_factory=list)

    @property
    def master(self) -> str:
        """The master of the line, of Spark's properties, of the environment, or this machine."""
        given = self.line.held.get("--master") or self.conf("spark.master")
        return given or os.environ.get("MASTER") or "local[*]"

    @property
    def deploy_mode(self) -> str:
        """The deploy mode of the line, of Spark's properties, or client."""
        given = self.line.held.get("--deploy-mode") or self.conf("spark.submit.deployMode")
        return given or "client"

    @property
    def on_cluster(self) -> bool:
        """Whether the driver runs elsewhere, too."""
        return self.deploy_mode != "client"

    def conf(self, key: str) -> str | None:
        """The value of a conf: the command line's, else that of the properties file in force."""
        return self.line.confs.get(key) or _properties(self._properties_file()).get(key)

    def _properties_file(self) -> Path:
        given = self.line.values("--properties-file")
        if given:
            return Path(given[-1])
        folder = os.environ.get("SPARK_CONF_DIR")
        return Path(folder or f"{os.environ.get('SPARK_HOME') or ROOT}/conf", "spark-defaults.conf")

    def jar_options(self) -> list[str]:
        """The options that say where jars come from."""
        options = [
            word
            for value in self.line.values("--repositories")
            for word in ("--repositories", value)
        ]
        for key in ("spark.jars.ivy", "spark.jars.ivySettings"):
            value = self.conf(key)
            options += ["--conf", f"{key}={value}"] if value else []
        return options

    def words(self) -> list[str]:
        """The words of the line; fills `environment` with the variables that go with it."""
        self._set_environment()
        submit = f"{self._spark_home}/bin/spark-submit"
        passed = [word for option in self.line.options for word in option]
        if self.line.alone:
            master = self.line.held.get("--master") or self.conf("spark.master")
            return [submit, *(["--master", master] if master else []), *passed]
        lists = dict(self.line.held)
        self.own += ["--master", self.master]
        if self.on_cluster:
            self.own += ["--deploy-mode", self.deploy_mode]
        if not (
            self.line.values("--driver-java-options") or self.conf("spark.driver.extraJavaOptions")
        ):
            self._set("spark.driver.extraJavaOptions", "-Xss4m")
        self._jars(lists)
        command = self.line.words
        if self.master.startswith("local"):
            self._here()
        else:
            self._elsewhere(lists)
        if self.on_cluster:
            command = self._with_config(lists)
        sent = [
            word
            for option in ("--jars", "--packages", "--py-files", "--archives", "--files")
            if lists.get(option)
            for word in (option, lists[option])
        ]
        return [submit, *self.own, *sent, *passed, str(MAIN), *command]

    def _set(self, key: str, value: str) -> None:
        self.own += ["--conf", f"{key}={value}"]

    @property
    def _spark_home(self) -> str:
        return os.environ.get("SPARK_HOME") or str(self.home.pyspark)

    def _set_environment(self) -> None:
        self.environment |= EVERYWHERE | {"NUMBA_CACHE_DIR": str(self.home.cores)}
        if not os.environ.get("SPARK_HOME"):
            conf = os.environ.get("SPARK_CONF_DIR") or f"{ROOT}/conf"
            self.environment |= {"SPARK_HOME": self._spark_home, "SPARK_CONF_DIR": conf}

    def _jars(self, lists: dict[str, str]) -> None:
        jars = self.home.jars()
        if jars:
            lists["--jars"] = joined(lists.get("--jars"), *map(str, jars))
            return
        say("not prepared yet: the line names the jars by their coordinates")
        lists["--packages"] = joined(*coordinates(), lists.get("--packages"))
        self.own += ["--exclude-packages", ",".join(IN_SPARK)]

    def _here(self) -> None:
        """Driver and executors in one JVM of this machine."""
        self.environment |= {
            "PYSPARK_PYTHON": self.home.python,
            "PYSPARK_DRIVER_PYTHON": self.home.python,
            "SPARK_LOCAL_IP": os.environ.get("SPARK_LOCAL_IP") or "127.0.0.1",
        }
        if self.prepares and self.line.command in COMPILED_AHEAD:
            self.home.prepare_cores()

    def _elsewhere(self, lists: dict[str, str]) -> None:
        """What any cluster needs: sources as a zip, packages packed or already installed."""
        code = self.home.data / "weir.zip"
        lists["--py-files"] = joined(lists.get("--py-files"), str(code))
        if self.prepares:
            self.home.data.mkdir(parents=True, exist_ok=True)
            self._package("code", str(code))
        worker = os.environ.get("WEIR_WORKER_PYTHON") or self.conf("spark.pyspark.python")
        if not worker:
            packed = self.home.packed_environment()
            if self.prepares and not packed.exists():
                say(f"packing the environment for the workers into {packed} (about 330 MB, once)")
                self._package("env", str(packed))
            lists["--archives"] = joined(lists.get("--archives"), f"{packed}#env")
            worker = "./env/bin/weir-python"
        self._set("spark.pyspark.python", worker)
        self._send_cores(lists)
        if not self.on_cluster:
            self._set("spark.pyspark.driver.python", self.home.python)
        for key, value in {**EVERYWHERE, "NUMBA_CACHE_DIR": WORKER_CORES}.items():
            self._set(f"spark.executorEnv.{key}", value)
            if self.on_cluster:
                self._set(f"spark.yarn.appMasterEnv.{key}", value)
                self._set(f"spark.kubernetes.driverEnv.{key}", value)

    def _send_cores(self, lists: dict[str, str]) -> None:
        """Compiled cores fit a worker with the same processor and packages; others compile."""
        packed = self.home.data / "cores.tar.gz"
        if self.prepares:
            self.home.prepare_cores()
            mark = self.home.cores_mark
            if not packed.exists() or packed.stat().st_mtime <= mark.stat().st_mtime:
                self._package("cores", str(packed))
        lists["--archives"] = joined(lists.get("--archives"), f"{packed}#numba-cache")

    def _package(self, what: str, *paths: str) -> None:
        """Write a package for the cluster; SystemExit with an exit code after what it reports."""
        code = self.home.module("app.setup.package", what, *paths)
        if code:
            sys.exit(code)

    def _with_config(self, lists: dict[str, str]) -> list[str]:
        """The command for a driver elsewhere: its configuration travels as one file."""
        config = self.line.option("--config")
        if config is None:
            return self.line.words
        sent = self.home.data / SENT_CONFIG
        lists["--files"] = joined(lists.get("--files"), str(sent))
        if self.prepares:
            self._package("config", config, str(sent))
        return self.line.replace_option("--config", SENT_CONFIG)


def log_format(line: Line) -> str:
    """The format of the log: Spark's own lines have that of the command's."""
    return line.option("--log-format") or os.environ.get("WEIR_LOG_FORMAT") or "text"


def tidy_words(home: Home, as_json: bool, pipe: Path | None) -> list[str]:
    """The command that filters what the JVM and its launcher print past the log, from a pipe."""
    script = str(ROOT / "app/terminal/stray_lines.py")
    words = [home.python, "-I", script, "json" if as_json else "text"]
    return words if pipe is None else [*words, str(pipe)]


def _properties(file: Path) -> dict[str, str]:
    if not file.is_file():
        return {}
    found: dict[str, str] = {}
    for text in file.read_text(encoding="utf-8", errors="replace").splitlines():
        pair = re.match(r"\s*([^\s=:#!][^\s=:]*)[\s=:]+(.*)", text)
        if pair:
            found[pair[1]] = pair[2].rstrip()
    return found
