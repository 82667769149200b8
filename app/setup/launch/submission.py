"""The line of spark-submit that runs a command, and its environment."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from app import folders
from app.jars import IN_SPARK, OF_KAFKA_CLIENT, client_jars, coordinates
from app.plain_text import lines_of
from app.setup.launch.home import EVERYWHERE, ROOT, Home, say
from app.setup.launch.line import LISTS, Line

MAIN = ROOT / "app/main.py"
WORKER_CORES = "./numba-cache"
COMPILED_AHEAD = ("run", "demo", "replay", "policy")
JAVA_OPTIONS, STACK = "spark.driver.extraJavaOptions", "-Xss4m"
ONE_COMPILER = "-XX:TieredStopAtLevel=1"
"""Leaves out the second compiler of Java, whose code pays off after some minutes of work: until then
it takes a third of what the JVM needs.
"""
SMALL_HEAP = (
    "-XX:+UseSerialGC",
    "-XX:InitialHeapSize=128m",
    "-XX:NewRatio=3",
    "-XX:MinHeapFreeRatio=30",
    "-XX:MaxHeapFreeRatio=50",
    "-XX:MetaspaceSize=160m",  # what Spark's classes need: else it is collected for each part of it
    "-Djdk.nio.maxCachedBufferSize=131072",  # each client of Kafka has threads that keep one
)
"""For a run that only polls, which waits most of its time: what it has used once goes back to the
system, and is not kept for the next poll.
"""
ONE_ARENA = {"MALLOC_ARENA_MAX": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}
"""The same of the C library and of Arrow: each feed has a thread, and each thread would keep its own."""
REUSE = "spark.python.worker.reuse"
SENT_CONFIG = "weir-config.yaml"


@dataclass
class Submission:
    """Builds the line; `prepares` is False for a dry run, which makes no file."""

    line: Line
    home: Home
    prepares: bool
    environment: dict[str, str] = field(default_factory=dict)
    options: list[str] = field(default_factory=list)
    """Weir's own; those of the user follow and override them."""
    polls_alone: bool = False
    """Whether the command is a run of polled feeds."""
    lists: dict[str, list[str]] = field(default_factory=dict)
    """The values of the options of LISTS, Weir's and the user's."""

    @property
    def given_master(self) -> str | None:
        """The master of the line, or of Spark's properties."""
        return self.line.last("--master") or self.conf("spark.master")

    @property
    def on_cluster(self) -> bool:
        """Whether the driver runs elsewhere, too."""
        given = self.line.last("--deploy-mode") or self.conf("spark.submit.deployMode")
        return given not in (None, "client")

    def conf(self, key: str) -> str | None:
        """The value of a conf: the command line's, else that of the properties file in force."""
        return self.line.confs.get(key) or _properties(self._properties_file()).get(key)

    def _properties_file(self) -> Path:
        folder = os.environ.get("SPARK_CONF_DIR")
        folder = folder or f"{os.environ.get('SPARK_HOME') or ROOT}/conf"
        return Path(self.line.last("--properties-file") or f"{folder}/spark-defaults.conf")

    def jar_options(self) -> list[str]:
        """The options that say where jars come from."""
        confs = {key: self.conf(key) for key in ("spark.jars.ivy", "spark.jars.ivySettings")}
        return [
            *(
                w
                for url in self.line.given.get("--repositories", [])
                for w in ("--repositories", url)
            ),
            *(w for key, value in confs.items() if value for w in ("--conf", f"{key}={value}")),
        ]

    def words(self) -> list[str]:
        """The words of the line; fills `environment` with the variables that go with it."""
        spark_home = os.environ.get("SPARK_HOME") or str(self.home.pyspark)
        self.environment |= EVERYWHERE | {"NUMBA_CACHE_DIR": str(self.home.cores)}
        if not os.environ.get("SPARK_HOME"):
            conf = os.environ.get("SPARK_CONF_DIR") or f"{ROOT}/conf"
            self.environment |= {"SPARK_HOME": spark_home, "SPARK_CONF_DIR": conf}
        submit = f"{spark_home}/bin/spark-submit"
        if self.line.alone:
            named = ["--master", self.given_master] if self.given_master else []
            return [submit, *named, *self.line.passed]
        self.lists |= {option: list(self.line.given.get(option, [])) for option in LISTS}
        master = self.given_master or os.environ.get("MASTER") or "local[*]"
        self.options += ["--master", master]
        if not any(word.startswith("--driver-java-options") for word in self.line.passed):
            fewer = [ONE_COMPILER] * (self._ends_soon or self.polls_alone)
            fewer += SMALL_HEAP if self.polls_alone else ()
            if fewer and master.startswith("local") and not self._java_options_of_user():
                self._set(JAVA_OPTIONS, " ".join([STACK, *fewer]))
            elif not self.conf(JAVA_OPTIONS):
                self._set(JAVA_OPTIONS, STACK)
        self._jars()
        if master.startswith("local"):
            if self.polls_alone:
                self._set(REUSE, "false")  # a fork of the daemon takes less time than it rests
                kept = {name: os.environ.get(name, value) for name, value in ONE_ARENA.items()}
                self.environment |= kept
            self._here()
        else:
            self._elsewhere()
        command = self._on_cluster() if self.on_cluster else self.line.words
        joined = {option: ",".join(values) for option, values in self.lists.items() if values}
        sent = [word for pair in joined.items() for word in pair]
        return [submit, *self.options, *sent, *self.line.passed, str(MAIN), *command]

    @property
    def _ends_soon(self) -> bool:
        """Whether the command ends by itself with the records that are there."""
        line = self.line
        return line.command == "demo" or (line.command == "run" and "--available-now" in line.words)

    def _java_options_of_user(self) -> bool:
        file = self._properties_file()
        ours = f"{ROOT}/conf/spark-defaults.conf"
        return JAVA_OPTIONS in self.line.confs or (
            str(file) != ours and JAVA_OPTIONS in _properties(file)
        )

    def _set(self, key: str, value: str) -> None:
        self.options += ["--conf", f"{key}={value}"]

    def _jars(self) -> None:
        jars = self.home.jars()
        if jars:
            self.lists["--jars"] += map(str, jars)
            folder = jars[0].parent
            self.environment["WEIR_JARS"] = str(folder)
            if self.on_cluster:
                self.lists["--files"] += map(str, client_jars(folder / OF_KAFKA_CLIENT))
            return
        say("not prepared yet: the line names the jars by their coordinates")
        self.lists["--packages"][:0] = coordinates()
        self.options += ["--exclude-packages", ",".join(IN_SPARK)]

    def _here(self) -> None:
        """Driver and executors in one JVM of this machine."""
        self.environment |= {
            "PYSPARK_PYTHON": self.home.python,
            "PYSPARK_DRIVER_PYTHON": self.home.python,
            "SPARK_LOCAL_IP": os.environ.get("SPARK_LOCAL_IP") or "127.0.0.1",
        }
        if self.prepares and self.line.command in COMPILED_AHEAD:
            self.home.prepare_cores()

    def _elsewhere(self) -> None:
        """What any cluster needs: sources as a zip, packages packed or already installed, compiled
        cores for workers with the same processor and packages; others compile."""
        worker = os.environ.get("WEIR_WORKER_PYTHON") or self.conf("spark.pyspark.python")
        code, cores = self.home.data / "weir.zip", self.home.data / "cores.tar.gz"
        packed = None if worker else self.home.packed_environment()
        if self.prepares:
            self._pack(code, packed, cores)
        self.lists["--py-files"].append(str(code))
        if packed:
            self.lists["--archives"].append(f"{packed}#env")
        self.lists["--archives"].append(f"{cores}#numba-cache")
        self._set("spark.pyspark.python", worker or "./env/bin/weir-python")
        if not self.on_cluster:
            self._set("spark.pyspark.driver.python", self.home.python)
        for key, value in {**EVERYWHERE, "NUMBA_CACHE_DIR": WORKER_CORES}.items():
            self._set(f"spark.executorEnv.{key}", value)
            if self.on_cluster:
                self._set(f"spark.yarn.appMasterEnv.{key}", value)
                self._set(f"spark.kubernetes.driverEnv.{key}", value)

    def _pack(self, code: Path, packed: Path | None, cores: Path) -> None:
        from app.setup.package import pack_code, pack_cores, pack_environment

        self.home.data.mkdir(parents=True, exist_ok=True)
        pack_code(code)
        if packed and not packed.exists():
            say(f"packing the environment for the workers into {packed} (about 330 MB, once)")
            pack_environment(packed)
        self.home.prepare_cores()
        made, mark = folders.look(cores), folders.look(self.home.cores_mark)
        if made is None or mark is None or made.st_mtime <= mark.st_mtime:
            pack_cores(self.home.cores, cores)

    def _on_cluster(self) -> list[str]:
        """The command for a driver elsewhere: its configuration travels as one file."""
        self.options += ["--deploy-mode", "cluster"]
        config = self.line.option("--config")
        if config is None:
            return self.line.words
        sent = self.home.data / SENT_CONFIG
        self.lists["--files"].append(str(sent))
        if self.prepares:
            from app.setup.package import pack_config

            pack_config(Path(config), sent)
        return [*self.line.words, "--config", SENT_CONFIG]  # the last one counts


def log_format(line: Line) -> str:
    """The format of the log: Spark's own lines have that of the command's."""
    return line.option("--log-format") or os.environ.get("WEIR_LOG_FORMAT") or "text"


def _properties(file: Path) -> dict[str, str]:
    lines = lines_of(folders.text(file))
    pairs = (re.match(r"\s*([^\s=:#!][^\s=:]*)[\s=:]+(.*)", text) for text in lines)
    return {pair[1]: pair[2].rstrip() for pair in pairs if pair}
