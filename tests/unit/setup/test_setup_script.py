"""spark-submit.sh: the environment on first use, what is missing, and what a command becomes.

Java, uv and Spark are stand-ins here, so that every machine of a user can be tried; the real ones
are used by every run of the test suite itself and by tests/spark/test_cluster.py.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from app.errors import UserError
from app.setup.launch.environment import TO_COMPILE
from app.setup.launch.home import Home

ROOT = Path(__file__).resolve().parents[3]
TOOLS = ("bash", "env", "dirname", "cat", "sleep", "cp", "wc")
VALIDATE = ("validate", "--config", "configs/weir.yaml")
INSTALL = "uv pip install --python {home}/bin/python --quiet --no-deps --require-hashes -r {lock}"
UV = f"""#!/bin/bash
# Installs the packages of this environment.
echo "uv $*" >> "$CALLS"
if [ -n "$KEEP" ]; then cp "${{9}}" "$KEEP-$(wc -l < "$CALLS")"; fi
if [ -n "$UV_FAILS" ]; then kill -9 $PPID; fi
echo {shlex.quote(sysconfig.get_path("purelib"))} > "${{4%/bin/*}}/lib/python3.11/site-packages/all.pth"
"""
SUBMIT = """#!/bin/bash
trap 'echo "batch finished"; exit 0' TERM
echo started
while :; do sleep 0.1; done
"""
DRIVER = """
import sys
from app.terminal import driver_stderr
driver_stderr.take()
print("begun", flush=True)
sys.stdin.read()
print("weir: interrupted", file=sys.stderr)
"""
JVM = f"""#!{sys.executable}
# Ends before its driver does, which has no other stream of it.
import subprocess, sys
print("before", file=sys.stderr, flush=True)
driver = subprocess.Popen(
    [sys.executable, "-c", {DRIVER!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
)
assert driver.stdout.readline() == b"begun\\n"
sys.exit(130)
"""
FILES = "source: {{format: files, path: {}}}\nwarehouse: w\n"


class Checkout:
    """A copy of what a clone has, on a machine whose programs the test chooses; jars and compiled
    cores are prepared."""

    def __init__(self, folder: Path) -> None:
        self.root, self.bin, self.calls = folder / "weir", folder / "bin", folder / "calls"
        for name in ("app", "state", "udfs", "conf", "configs"):
            shutil.copytree(ROOT / name, self.root / name)  # with what Python has compiled
        for name in ("spark-submit.sh", "requirements.lock"):
            shutil.copy2(ROOT / name, self.root / name)
        self.home = self.root / ".venv"
        self.bin.mkdir()
        for name in TOOLS:
            found = shutil.which(name)
            assert found
            (self.bin / name).symlink_to(found)
        (self.bin / "python3.11").symlink_to(Path(sys.executable).resolve())
        self.program("uv", UV)
        self.program("java", "#!/bin/bash\necho 'openjdk version \"17.0.15\"' >&2\n")
        self.jars, self.cores = folder / "jars", folder / "numba"
        for path in (self.jars / "delta.jar", self.cores / Home.of_this_python().cores_mark.name):
            path.parent.mkdir()
            path.touch()
        self.spark = self.root / "spark"
        for path in ("bin/spark-submit", "jars/spark-core_2.13-4.0.5.jar"):
            (self.spark / path).parent.mkdir(parents=True)
            (self.spark / path).touch(0o755)

    def program(self, name: str, text: str) -> None:
        path = self.bin / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def submits(self, text: str) -> None:
        """What Spark's spark-submit does."""
        path = self.spark / "bin/spark-submit"
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def environment(self, **more: str) -> dict[str, str]:
        return {
            "PATH": str(self.bin),
            "HOME": str(self.root),
            "CALLS": str(self.calls),
            "WEIR_JARS": str(self.jars),
            "NUMBA_CACHE_DIR": str(self.cores),
            "SPARK_HOME": str(self.spark),
            **more,
        }

    def start(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.root / "spark-submit.sh"), *words],
            env=self.environment(**more),
            cwd=self.root,
            text=True,
            capture_output=True,
            check=False,
            timeout=60,
        )

    def called(self) -> list[str]:
        return self.calls.read_text(encoding="utf-8").splitlines() if self.calls.exists() else []


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """One whose environment is ready, for tests that leave it so."""
    checkout = Checkout(tmp_path_factory.mktemp("built"))
    done = checkout.start("--prepare")
    assert done.returncode == 0, done.stderr
    checkout.calls.unlink()
    return checkout


def test_the_first_start_builds_the_environment_and_the_second_does_not(checkout: Checkout) -> None:
    shown = checkout.start("--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "--dry-run" in shown.stdout and " bakeoff " in shown.stdout
    refused = checkout.start("runn", "--config", "weir.yaml")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.splitlines()[0] == "weir: No such command 'runn'"
    line = checkout.start("--dry-run", "demo", WEIR_JARS="")
    assert f"PYSPARK_PYTHON={checkout.home}/bin/python" in line.stdout
    assert checkout.called() == [] and not checkout.home.exists()
    first = checkout.start(*VALIDATE)
    assert first.returncode == 0, first.stderr
    assert f"weir: building the Python environment in {checkout.home}" in first.stderr
    lock = checkout.home / "share/weir/requirements.lock"
    assert checkout.called() == [INSTALL.format(home=checkout.home, lock=lock)]
    second = checkout.start(*VALIDATE)
    assert (second.stdout, second.stderr) == (first.stdout, "")
    assert len(checkout.called()) == 1


def test_where_python_keeps_no_bytecode_it_is_written_at_set_up(checkout: Checkout) -> None:
    for kept in checkout.root.rglob("__pycache__"):
        shutil.rmtree(kept)
    done = checkout.start("--prepare", PYTHONDONTWRITEBYTECODE="1")
    assert done.returncode == 0, done.stderr
    for folder in ("app", "state/engine", "udfs"):
        sources = {path.stem for path in (checkout.root / folder).glob("*.py")}
        compiled = (checkout.root / folder / "__pycache__").glob("*.pyc")
        assert sources and {path.name.split(".")[0] for path in compiled} == sources


def test_what_compiling_needs_is_installed_first(checkout: Checkout) -> None:
    done = checkout.start("--prepare", KEEP=str(checkout.root / "kept"))
    assert done.returncode == 0, done.stderr
    lock = (checkout.root / "requirements.lock").read_text(encoding="utf-8")
    kept = [path.read_text(encoding="utf-8") for path in sorted(checkout.root.glob("kept*"))]
    assert {re.split("[=; ]", line)[0] for line in kept[0].splitlines() if line[0] != " "} == set(
        TO_COMPILE
    )
    assert sorted("".join(kept).splitlines()) == sorted(lock.splitlines())


def test_the_cores_compile_without_any_other_package() -> None:
    program = f"""
import sys
from importlib.metadata import packages_distributions
owners = packages_distributions()
class Only:
    def find_spec(self, name, path=None, target=None):
        packages = [one.lower().replace("_", "-") for one in owners.get(name.split(".")[0], [])]
        if packages and not set(packages) & set({TO_COMPILE}):
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Only())
from app.jobs import parts
from app.setup.warm import warm
parts("warm")
warm(["producer_ids"])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_an_environment_that_was_interrupted_or_is_of_another_lock_is_built_again(
    checkout: Checkout,
) -> None:
    killed = checkout.start(*VALIDATE, UV_FAILS="1")
    assert killed.returncode == -signal.SIGKILL
    (checkout.home / "half-written").touch()
    again = checkout.start(*VALIDATE)
    assert again.returncode == 0, again.stderr
    assert "unfinished or of another lock" in again.stderr
    assert not (checkout.home / "half-written").exists()
    with (checkout.root / "requirements.lock").open("a", encoding="utf-8") as lock:
        lock.write("# changed\n")
    changed = checkout.start(*VALIDATE)
    assert changed.returncode == 0, changed.stderr
    assert "unfinished or of another lock" in changed.stderr
    assert len(checkout.called()) == 3


def test_of_two_starts_at_once_one_builds_the_environment(checkout: Checkout) -> None:
    checkout.program("uv", UV.replace("echo", "sleep 1; echo", 1))
    line = [str(checkout.root / "spark-submit.sh"), *VALIDATE]
    both = [
        subprocess.Popen(
            line,
            cwd=checkout.root,
            env=checkout.environment(),
            text=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        for _ in range(2)
    ]
    said = "".join(process.communicate(timeout=60)[1] for process in both)
    assert [process.returncode for process in both] == [0, 0], said
    assert said.count("weir: waiting for another start") == 1
    assert len(checkout.called()) == 1


def test_an_environment_of_another_lock_by_name_is_left_alone(built: Checkout) -> None:
    other = built.root / "other.lock"
    other.write_text("pyspark==4.0.5\n", encoding="utf-8")
    refused = built.start(*VALIDATE, WEIR_LOCK=str(other))
    assert refused.returncode == 2
    assert refused.stderr.splitlines() == [
        f"weir: {built.home} was built from requirements.lock, not from other.lock",
        "      WEIR_LOCK names the lock, or WEIR_HOME another folder",
    ]
    assert built.called() == []


def test_a_folder_that_is_no_environment_is_left_alone(built: Checkout) -> None:
    precious = built.root / "precious"
    precious.mkdir()
    (precious / "file").touch()
    refused = built.start(*VALIDATE, WEIR_HOME=str(precious))
    assert refused.returncode == 2
    assert "is not an environment of Weir and is not empty" in refused.stderr
    assert (precious / "file").exists()


def test_pip_installs_where_there_is_no_uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from app.setup.launch import environment

    calls: list[list[str]] = []

    def run(words: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        calls.append(words)
        return subprocess.CompletedProcess(words, 0)

    monkeypatch.setattr(environment.shutil, "which", lambda _: None)
    monkeypatch.setattr(environment.venv, "create", lambda *_, **__: (tmp_path / "env").mkdir())
    monkeypatch.setattr(environment.subprocess, "run", run)
    monkeypatch.setattr(environment.sys, "dont_write_bytecode", False)
    environment.prepare(
        Home.of_environment(tmp_path / "env"), ROOT / "requirements.lock", compiles=False
    )
    ((python, *pip),) = calls
    assert python == f"{tmp_path}/env/bin/python"
    assert pip[:3] == ["-m", "pip", "install"]
    assert pip[-4:] == [
        "--no-deps",
        "--require-hashes",
        "-r",
        f"{tmp_path}/env/share/weir/requirements.lock",
    ]


@pytest.mark.parametrize("failures", [0, 1, 2])
def test_a_download_that_fails_once_is_tried_again(
    failures: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WEIR_JARS", raising=False)
    calls, python = tmp_path / "calls", tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\necho "$3" >> {calls}\necho "download failed: an Error"\n'
        f"test $(wc -l < {calls}) -gt {failures}\n"
    )
    python.chmod(0o755)
    home = Home(tmp_path, str(python), tmp_path, tmp_path / "data")
    if failures == 2:
        with pytest.raises(UserError, match="the jars could not be fetched"):
            home.prepare_jars([])
    else:
        home.prepare_jars([])
        home.prepare_jars([])  # they are there
    assert calls.read_text().splitlines() == [f"{tmp_path}/data/jars"] * min(failures + 1, 2)
    assert (tmp_path / "data" / "jars.of").exists() == (failures < 2)


def test_a_missing_python_is_named_with_what_installs_it(checkout: Checkout) -> None:
    (checkout.bin / "python3.11").unlink()
    refused = checkout.start(*VALIDATE)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("weir: Python 3.11 is missing\n")
    assert "apt-get install python3.11 python3.11-venv" in refused.stderr


def test_a_java_that_is_missing_or_does_not_fit_is_refused_by_name(
    built: Checkout, tmp_path: Path
) -> None:
    refused = built.start("doctor", JAVA_HOME="/nowhere")
    assert refused.returncode == 2
    first, second = refused.stderr.splitlines()
    assert first == "weir: Java 17 is missing in JAVA_HOME=/nowhere"
    assert "apt-get install openjdk-17-jre-headless" in second
    java = tmp_path / "bin/java"
    java.parent.mkdir()
    for version in ("11.0.2", "25.0.1", "1.8.0_292"):
        java.write_text(f"#!/bin/bash\necho 'openjdk version \"{version}\"' >&2\n")
        java.chmod(0o755)
        refused = built.start("--dry-run", "demo", JAVA_HOME=str(tmp_path))
        assert refused.returncode == 2
        major = version.split(".")[0]
        assert f"Java {major} ({java}) does not fit Spark 4.0: it needs 17 to 21" in refused.stderr


@pytest.mark.parametrize(
    ("words", "config", "says"),
    [
        (["run"], None, "source: is missing"),
        (["run", "--config", "none.yaml"], None, "none.yaml: cannot be read"),
        (
            ["run", "--config", "c.yaml"],
            "shard: 4\n" + FILES.format("."),
            "c.yaml: shard: unknown key",
        ),
        (["run", "--config", "c.yaml"], FILES.format("gone"), "source.path: gone does not exist"),
        (["run", "--config", "c.yaml", "--jobs", "x"], FILES.format("."), "--jobs x: is not a job"),
        (
            ["run", "--config", "c.yaml", "--metrics", "x"],
            FILES.format("."),
            "No such option: --metri",
        ),
        (
            ["run", "--config", "c.yaml"],
            FILES.format(".") + "alerts: {rule_files: [none.yaml]}",
            "none.yaml: cannot be read",
        ),
        (["doctor", "--config", "none.yaml"], None, "none.yaml: cannot be read"),
        (["demo", "--out", "app"], None, "--out app: is not empty and was not made by demo"),
        (["demo", "--events", "5"], None, "No such option: --events"),
        (["demo", "--scenario", "real"], None, "--scenario real: is not a scenario of demo"),
        (["generate", "--out", "trace"], None, "No such command 'generate'"),
        (
            [
                "--deploy-mode",
                "cluster",
                "--master",
                "yarn",
                "run",
                "--config",
                "c.yaml",
                "--jobs",
                "x",
            ],
            FILES.format("gone"),
            "--jobs x: is not a job",
        ),
    ],
)
def test_a_mistake_is_found_before_spark(
    built: Checkout, words: list[str], config: str | None, says: str
) -> None:
    built.submits('#!/bin/bash\necho spark >> "$CALLS"\n')
    if config is not None:
        (built.root / "c.yaml").write_text(config, encoding="utf-8")
    refused = built.start(*words)
    assert refused.returncode == 2
    (line,) = [line for line in refused.stderr.splitlines() if says in line]
    assert line.startswith("weir: ")
    assert built.called() == []
    assert not (built.root / "w").exists()


def test_what_only_the_driver_of_a_cluster_can_know_is_left_to_it(checkout: Checkout) -> None:
    checkout.submits('#!/bin/bash\necho "spark $*" >> "$CALLS"\n')
    (checkout.root / "c.yaml").write_text(FILES.format("/on/the/cluster"), encoding="utf-8")
    line = ["--master", "yarn", "--deploy-mode", "cluster", "run", "--config", "c.yaml"]
    started = checkout.start(*line, WEIR_WORKER_PYTHON="python3.11")
    assert started.returncode == 0, started.stderr
    (spark,) = [call for call in checkout.called() if call.startswith("spark")]
    sent = dict(zip(spark.split(), spark.split()[1:], strict=False))
    for option, name in (
        ("--py-files", "weir.zip"),
        ("--archives", "cores.tar.gz"),
        ("--files", "weir-config.yaml"),
    ):
        assert Path(sent[option].partition("#")[0]).name == name
        assert Path(sent[option].partition("#")[0]).is_file()


NOISY = """#!/bin/bash
echo "WARNING: Using incubator modules: jdk.incubator.vector" >&2
echo "Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties" >&2
echo 'Setting default log level to "WARN".' >&2
echo "OpenJDK 64-Bit Server VM warning: INFO: os::commit_memory failed" >&2
echo >&2
echo '{"time": "t", "level": "INFO", "message": "started", "terminal": "'"${WEIR_TERMINAL:-no}"'"}'
printf 'a "last" line \\\\ without an end'
"""
UNAVOIDABLE = "OpenJDK 64-Bit Server VM warning: INFO: os::commit_memory failed"


def noisy(built: Checkout, *words: str) -> subprocess.CompletedProcess[str]:
    """A command under a Spark whose JVM and launcher print past the log."""
    built.submits(NOISY)
    (built.root / "c.yaml").write_text(FILES.format("."), encoding="utf-8")
    done = built.start(*words)
    assert done.returncode == 0, done.stderr
    return done


def test_lines_that_nobody_can_act_on_are_left_out_and_others_are_not(built: Checkout) -> None:
    done = noisy(built, "demo")
    assert done.stderr.splitlines() == [UNAVOIDABLE, ""]
    assert done.stdout.splitlines()[-1] == 'a "last" line \\ without an end'


def test_the_log_of_a_run_is_on_standard_error(built: Checkout) -> None:
    done = noisy(built, "run", "--config", "c.yaml")
    assert done.stdout == ""
    assert "incubator" not in done.stderr
    assert '"message": "started", "terminal": "no"}' in done.stderr
    assert done.stderr.count(UNAVOIDABLE) == 1


@pytest.mark.parametrize(
    "words",
    [
        ("run", "--config", "c.yaml", "--log-format", "json"),
        ("run", "--log-format=json", "--config", "c.yaml"),
    ],
)
def test_every_line_of_a_log_as_json_is_an_object(built: Checkout, words: tuple[str, ...]) -> None:
    done = noisy(built, *words)
    assert done.stdout == ""
    found = [json.loads(line) for line in done.stderr.splitlines()]
    assert {(each["level"], each["message"]) for each in found} == {
        ("WARNING", UNAVOIDABLE),
        ("INFO", "started"),
        ("WARNING", 'a "last" line \\ without an end'),
    }
    assert len(found) == 3
    assert all(re.fullmatch(r"t|[\d-]{10}T[\d:.]{12}Z", each["time"]) for each in found)


def test_what_the_driver_writes_after_the_jvm_has_ended_is_shown(
    built: Checkout, tmp_path: Path
) -> None:
    built.submits(JVM)
    done = built.start("demo", TMPDIR=str(tmp_path))
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.splitlines() == ["before", "weir: interrupted"]
    assert not list(tmp_path.iterdir())


def test_a_signal_for_the_script_reaches_spark(built: Checkout) -> None:
    built.submits(SUBMIT)
    process = subprocess.Popen(
        [str(built.root / "spark-submit.sh"), "demo"],
        cwd=built.root,
        text=True,
        env=built.environment(),
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    os.kill(process.pid, signal.SIGTERM)
    assert process.communicate(timeout=20)[0] == "batch finished\n"
    assert process.returncode == 0
