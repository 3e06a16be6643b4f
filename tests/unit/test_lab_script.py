# SPDX-License-Identifier: GPL-2.0-only
"""Does the wrapper set up what is missing, once, and then stay out of the way?

It runs for real, in a small checkout of its own that needs no network: the build back end below, no dependencies.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from full_disk import room
from namespaces import OWN_MOUNTS, fork_with_mount

from orchestrator.benchmarks.system.workloads import system_workloads

ROOT = Path(__file__).resolve().parents[2]
TOOLS = (
    *("cat", "chmod", "cp", "df", "env", "flock", "grep", "id", "ln", "mkdir"),
    *("readlink", "rm", "sh", "sha256sum", "sleep", "tail"),
)
CONSTRAINTS = "orchestrator-needs-nothing==1\n"
NEEDS = """\
# need package why
python3.11+venv     python3-venv     runs the lab
flock               util-linux       locks
qemu-system-x86_64  qemu-system-x86  runs the guests
gcc                 gcc              compiles
cc1                 gcc              compiles, too
"""
PYPROJECT = """\
[build-system]
requires = []
build-backend = "back_end"
backend-path = ["."]
[project]
name = "orchestrator"
version = "0"
optional-dependencies.test = []
"""
BACK_END = """\
    import pathlib, zipfile
    def build_editable(folder, config_settings=None, metadata_directory=None):
        name, info = "orchestrator-0-py3-none-any.whl", "orchestrator-0.dist-info"
        with zipfile.ZipFile(pathlib.Path(folder) / name, "w") as wheel:
            wheel.writestr("orchestrator.pth", str(pathlib.Path.cwd()))
            wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: orchestrator\\nVersion: 0\\n"
                           "Provides-Extra: test\\n")
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
            wheel.writestr(f"{info}/entry_points.txt", "[console_scripts]\\norchestrator = orchestrator:main\\n")
            wheel.writestr(f"{info}/RECORD", "")
        return name
"""
ORCHESTRATOR = """\
    import os, sys, time
    def main():
        print(os.getpid(), os.getcwd(), *sys.argv[1:], sep="|", flush=True)
        if sys.argv[1:] == ["called as"]:
            print(os.environ["ORCHESTRATOR_CALLED_BY"], os.environ["ORCHESTRATOR_CALLED_AS"])
        if sys.argv[1:] == ["encodings"]:
            print(sys.flags.utf8_mode, os.environ.get("PYTHONIOENCODING"))
        if sys.argv[1:] == ["sleep"]:
            time.sleep(60)
        return 7
"""
# Keeps a copy of the environment that it makes.
KEEPING_PYTHON = """\
    if [ "$1 $2 $3" = '-I -m venv' ]; then
        "{python}" "$@" && exec cp -a "$4" "{pristine}"
    fi
    exec "{python}" "$@"
"""
# Stands for Python where a test is not about `python -m venv`: 3.6 s of a processor, most of it pip, read from its
# wheel. A copy of an environment works like a new one.
COPYING_PYTHON = """\
    if [ "$1 $2 $3" = '-I -m venv' ]; then
        exec cp -a "{pristine}" "$4"
    fi
    exec "{python}" "$@"
"""
# The Python of an environment where a test is not about pip either, which takes a second to install nothing. It prints
# what pip is asked for.
WITHOUT_PIP = """\
    #!/bin/sh
    case " $* " in *' -m pip '*) ;; *) exec "{python}" "$@" ;; esac
    printf '%s\\n' "$*" "in LC_ALL=$LC_ALL"
    for folder; do :; done
    cat >"${{0%/*}}/orchestrator" <<END
    #!{python}
    import sys
    sys.path[0] = "${{folder%[*}}"
    from orchestrator import main
    sys.exit(main())
    END
    chmod +x "${{0%/*}}/orchestrator"
"""
# `python -m` looks into the working directory, the checkout, first.
IN_PLACE_OF_PYTEST = """\
    import os, pathlib, signal, sys, time
    def end(number, frame):
        pathlib.Path(os.environ["pytest_waits"]).write_text(signal.Signals(number).name)
        sys.exit(2)
    signal.signal(signal.SIGTERM, end)
    print("pytest", *sys.argv[1:], flush=True)
    if "pytest_waits" in os.environ:
        time.sleep(600)
    sys.exit(int(os.environ.get("pytest_status", "0")))
"""


@dataclass
class Checkout:
    """A checkout, the only folder of programs it sees, and its cache."""

    folder: Path
    tools: Path
    cache: Path
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.environment = {
            "PATH": str(self.tools),
            "ORCHESTRATOR_CACHE": str(self.cache),
            "LAB_OS_RELEASE": "/nowhere",
        }

    def lab(self, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
        return self.run([str(self.folder / "lab"), *arguments], settings)

    def run(self, command: list[str], settings: dict[str, str]) -> subprocess.CompletedProcess[str]:
        environment = {**self.environment, **settings}
        return subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment, cwd=self.folder.parent, timeout=600
        )

    def tool(self, name: str, script: str) -> None:
        path = self.tools / name
        path.unlink(missing_ok=True)
        path.write_text("#!/bin/sh\n" + textwrap.dedent(script))
        path.chmod(0o755)

    def files(self) -> set[Path]:
        return set(self.folder.rglob("*"))


def make_checkout(base: Path) -> Checkout:
    base.chmod(0o755)
    folder, tools = base / "a lab & more", base / "tools"
    for path in (tools, folder / "images", folder / "orchestrator"):
        path.mkdir(parents=True)
    shutil.copy(ROOT / "lab", folder)
    (folder / "images/host-packages.txt").write_text(NEEDS)
    for name in ("kernel", "type", "header", "bpf", "bpf-compiler", "image", "module", "test"):
        (folder / f"images/{name}-packages.txt").write_text("# none\n")
    (folder / "pyproject.toml").write_text(PYPROJECT)
    (folder / "constraints.txt").write_text(CONSTRAINTS)
    (folder / "back_end.py").write_text(textwrap.dedent(BACK_END))
    (folder / "orchestrator/__init__.py").write_text(textwrap.dedent(ORCHESTRATOR))
    (folder / "pytest.py").write_text(textwrap.dedent(IN_PLACE_OF_PYTEST))
    for name in TOOLS:
        (tools / name).symlink_to(shutil.which(name) or "/missing")
    (tools / "python3").symlink_to(Path(sys.executable).resolve())
    checkout = Checkout(folder, tools, base / "cache")
    for name in ("qemu-system-x86_64", "gcc", "cc1"):
        checkout.tool(name, "")
    return checkout


@pytest.fixture
def bare() -> Iterator[Checkout]:
    """A checkout that was never used. Not below tmp_path, which other users cannot enter."""
    with tempfile.TemporaryDirectory() as base:
        yield make_checkout(Path(base))


@pytest.fixture(scope="module")
def pretended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment without pip, larger than a disk that is full."""
    folder = tmp_path_factory.mktemp("pretended")
    (folder / "bin").mkdir()
    (folder / "packages").write_bytes(b"x" * (8 << 20))
    python = folder / "bin" / "python"
    python.write_text(textwrap.dedent(WITHOUT_PIP).format(python=Path(sys.executable).resolve()))
    python.chmod(0o755)
    return folder


@pytest.fixture
def copying(bare: Checkout, pretended: Path) -> Checkout:
    """A checkout that was never used, whose Python makes an environment by copying one without pip."""
    make_environments(bare, COPYING_PYTHON, pretended)
    return bare


def make_environments(checkout: Checkout, script: str, pristine: Path) -> None:
    checkout.tool("python3", script.format(pristine=pristine, python=Path(sys.executable).resolve()))


def pristine_of(ready: Checkout) -> Path:
    """An environment as ``python -m venv`` makes it."""
    return ready.folder.parent / "pristine"


@pytest.fixture(scope="module")
def ready(pretended: Path) -> Iterator[Checkout]:
    """A checkout whose environment is made, really; tests leave it as it is."""
    with tempfile.TemporaryDirectory() as base:
        checkout = make_checkout(Path(base))
        make_environments(checkout, KEEPING_PYTHON, pristine_of(checkout))
        before = checkout.files()
        first = checkout.lab("first")
        assert first.returncode == 7, first.stderr
        assert "installing Python packages" in first.stderr
        assert checkout.files() == before, "the first use wrote into the checkout"
        make_environments(checkout, COPYING_PYTHON, pretended)  # for `lab test`, which has another one
        yield checkout


def test_arguments_folder_and_status_pass_through(ready: Checkout) -> None:
    done = ready.lab("run", "a b", "", "*", "--x=$HOME")
    assert done.stdout.rstrip("\n").split("|")[1:] == [str(ready.folder.parent), "run", "a b", "", "*", "--x=$HOME"]
    assert done.returncode == 7


@pytest.mark.parametrize(
    ("charmap", "encoding"),
    [("UTF-8", None), ("ANSI_X3.4-1968", None), ("ISO-8859-1", "ISO-8859-1:backslashreplace"), ("", None)],
)
def test_files_are_utf_8_and_the_terminal_is_what_it_is(ready: Checkout, charmap: str, encoding: str | None) -> None:
    ready.tool("locale", f"echo '{charmap}'" if charmap else "exit 1")
    done = ready.lab("encodings", LC_ALL="C.UTF-8")
    assert done.stdout.splitlines()[1:] == [f"1 {encoding}"]


def test_the_second_time_nothing_is_installed(ready: Checkout, record_property: Callable[[str, object], None]) -> None:
    before = ready.files()
    started = time.monotonic()
    done = ready.lab("again", PIP_NO_INDEX="1")
    record_property("seconds", time.monotonic() - started)
    assert (done.returncode, done.stderr) == (7, "")
    assert ready.files() == before


def test_through_a_symlink(ready: Checkout, tmp_path: Path) -> None:
    link = tmp_path / "my lab"
    link.symlink_to(ready.folder / "lab")
    done = ready.run([str(link)], {})
    assert (done.returncode, done.stderr) == (7, "")


def test_one_line_installs_it(ready: Checkout, tmp_path: Path) -> None:
    installed = 'mkdir -p ~/.local/bin && ln -s "$PWD/lab" ~/.local/bin/lab'
    used = 'cd / && PATH="$HOME/.local/bin:$PATH" && lab "called as"'
    done = ready.run(["sh", "-c", f'cd "$1" && {installed} && {used}', "-", str(ready.folder)], {"HOME": str(tmp_path)})
    assert (done.returncode, done.stderr) == (7, "")
    assert [line.strip() for line in done.stdout.splitlines()[1:]] == ["lab"]


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("./lab", "./lab"),
        ("sh lab", "sh lab"),
        ("sh ./lab", "./lab"),
        ("chmod -x lab && sh ./lab", "sh ./lab"),
        ('PATH="$PWD:$PATH" && lab', "lab"),
        ('"$PWD/lab"', "{folder}/lab"),
    ],
)
def test_the_program_learns_what_it_was_called(ready: Checkout, typed: str, said: str) -> None:
    command = f'cd "$1" && {typed} "called as"'
    done = ready.run(["sh", "-c", command, "-", str(ready.folder)], {})
    (ready.folder / "lab").chmod(0o755)
    assert [line.strip() for line in done.stdout.splitlines()[1:]] == [said.format(folder=ready.folder)]


def test_signals_reach_the_orchestrator_itself(ready: Checkout) -> None:
    command = [str(ready.folder / "lab"), "sleep"]
    with subprocess.Popen(command, env=ready.environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().split("|")[0] == str(process.pid)
        process.terminate()
        assert process.wait(timeout=600) == -signal.SIGTERM


def test_a_relative_cache_folder_is_one_below_the_callers(ready: Checkout) -> None:
    done = ready.lab(ORCHESTRATOR_CACHE=ready.cache.name)
    assert (done.returncode, done.stderr) == (7, "")


def test_doctor_runs_on_a_host_without_qemu(ready: Checkout) -> None:
    poor = ready.tools.parent / "poor"
    shutil.copytree(ready.tools, poor, symlinks=True)
    (poor / "qemu-system-x86_64").unlink()
    assert ready.lab("doctor", PATH=str(poor)).returncode == 7
    assert ready.lab("run", PATH=str(poor)).returncode == 3


ALL_LISTS = "kernel type header bpf bpf-compiler image module test"


@pytest.mark.parametrize(
    ("command", "listed"),
    [
        ("run", ""),
        ("run none.yaml missing.yaml", ""),
        ("exec -- echo --image", ""),
        ("exec -- echo --kernel-modules", ""),
        ("image", "image"),
        ("kernel", "kernel type"),
        ("build", ""),
        ("build --help", ""),
        ("build kernels", ""),
        ("build --tree linux", "kernel type"),
        ("build tree", "kernel type"),
        ("nightly", "kernel type header bpf bpf-compiler image"),
        ("test", ALL_LISTS),
        ("exec --kernel-modules -- true", "image module"),
        ("run modules.yaml", "image module"),
        ("run none.yaml --set=tables.x.kernel_modules=[vfat]", "image module"),
        ("exec --image debian-i386 -- true", "image"),
        ("exec --data=folder -- true", "image"),
        ("run x.yaml --set image=debian-i386", "image"),
        ("run macro.yaml", "image"),
        ("run none.yaml --set image=./mine.yaml", "image"),
        ("run none.yaml --set=benchmark.name=ping-flood", "image"),
    ],
)
def test_what_only_some_commands_need_is_asked_of_them_alone(bare: Checkout, command: str, listed: str) -> None:
    for name in ("host", *ALL_LISTS.split()):
        (bare.folder / f"images/{name}-packages.txt").write_text(f"no-such-{name}  its-{name}  makes it\n")
    (bare.folder.parent / "macro.yaml").write_text("name: x # no image: here\nmacro: {name: ping-flood}")
    (bare.folder.parent / "none.yaml").write_text("# image: none\nname: x # macro: none\n# kernel_modules: none\n")
    (bare.folder.parent / "modules.yaml").write_text("name: x\nkernel_modules: [vfat]\n")
    done = bare.lab(*command.split())
    assert done.returncode == 3
    missing, packages = (line.partition(": ")[2].partition(": ")[2].split() for line in done.stderr.splitlines())
    assert missing == [f"no-such-{name}" for name in ("host", *listed.split())]
    assert packages == [f"its-{name}" for name in ("host", *listed.split())]


@pytest.mark.parametrize(("version", "package"), [("24.04", "linux-tools-generic"), ("26.04", "bpftool")])
def test_ubuntu_needs_mmdebstrap_and_has_bpftool_elsewhere(
    bare: Checkout, tmp_path: Path, version: str, package: str
) -> None:
    (tmp_path / "os-release").write_text(f'NAME="Ubuntu"\nVERSION_ID="{version}"\nID=ubuntu\nID_LIKE=debian\n')
    (bare.folder / "images/image-packages.txt").write_text("no-such-mmdebstrap  mmdebstrap  knows a mirror\n")
    (bare.folder / "images/host-packages.txt").write_text("no-such-bpftool  bpftool  lists\n")
    done = bare.lab("run", LAB_OS_RELEASE=str(tmp_path / "os-release"))
    assert done.stderr.rstrip().endswith(f"Debian's packages are called: {package} mmdebstrap")


ENGINE = """\
    printf '%s|' "$@" >>"$LOG"
    echo >>"$LOG"
    case $1 in
        inspect) [ -n "${built-}" ] ;;
        from) echo container-1 ;;
        run) exit 5 ;;
    esac
"""


def in_engine(checkout: Checkout, folder: Path, *arguments: str, **settings: str) -> list[str]:
    """What engines were asked for by a command in a container, called in ``folder``; its status is theirs."""
    log = folder / "log"
    log.unlink(missing_ok=True)
    command = ["sh", "-c", 'cd "$1" && shift && "$@"', "-", str(folder), str(checkout.folder / "lab"), "container"]
    done = checkout.run([*command, *arguments], {"LOG": str(log), "PATH": str(checkout.tools), **settings})
    assert done.returncode == 5, done.stderr
    asked = log.read_text().replace(str(checkout.folder), "LAB").replace(str(folder), "HERE")
    return [line.rstrip("|") for line in asked.splitlines()]


def test_a_container_has_the_checkout_the_callers_folder_and_a_volume(bare: Checkout, tmp_path: Path) -> None:
    shutil.copy(ROOT / "Containerfile", bare.folder)
    bare.tool("podman", ENGINE)
    version, inspect, build, run = in_engine(bare, tmp_path, "run", "my file.yaml", ORCHESTRATOR_CONTAINER_BASE="mine")
    image = inspect.rpartition("|")[2]
    assert (version, inspect) == ("version", f"inspect|--type|image|{image}")
    assert build == f"build|--build-arg|BASE=mine|-t|{image}|-f|LAB/Containerfile|LAB/images"
    assert run.startswith("run|-v|LAB:LAB|-e|ORCHESTRATOR_DEBIAN_MIRROR|")
    assert "|-v|HERE:HERE|" in run
    assert "|-v|probe-lab:/var/lib/probe-lab|--workdir|HERE|" in run
    assert run.endswith(f"|{image}|tini|-s|-g|--|LAB/lab|inside-container||LAB/lab|run|my file.yaml")
    assert not {"--privileged", "--cap-add"} & set(run.split("|"))
    # Built once, it is there; another package list makes another.
    options = {"built": "yes", "ORCHESTRATOR_CONTAINER_OPTIONS": "--network host"}
    again = in_engine(bare, bare.folder / "images", "doctor", **options)
    assert again[-1].startswith("run|--network|host|-v|LAB:LAB|")
    assert "|-v|LAB/images:" not in again[-1]
    assert len(again) == 3
    (bare.folder / "images/test-packages.txt").write_text("x its-x makes it\n")
    assert image not in in_engine(bare, tmp_path, "doctor")[1]


def test_buildah_runs_a_container_that_is_removed(bare: Checkout, tmp_path: Path) -> None:
    shutil.copy(ROOT / "Containerfile", bare.folder)
    bare.tool("docker", "exit 1")  # without its daemon
    bare.tool("buildah", ENGINE)
    *_, run, removed = in_engine(bare, tmp_path, "doctor", built="yes")
    assert f"|-v|{bare.cache}/container:/var/lib/probe-lab|--workingdir|HERE|container-1|--|tini|" in run
    assert removed == "rm|container-1"


def test_without_an_engine_those_that_would_do_are_named(bare: Checkout) -> None:
    done = bare.lab("container", "doctor")
    assert (done.returncode, done.stderr) == (3, "lab: no container engine works here: podman, docker or buildah\n")
    assert bare.lab("container", "--help").stdout.startswith(f"Usage: {bare.folder}/lab container [ARGUMENTS")


SYSTEM_WORKLOADS = list(system_workloads().benchmarks)


@pytest.mark.parametrize("name", SYSTEM_WORKLOADS)
@pytest.mark.parametrize(
    "experiment",
    [
        "name: x\nbenchmark: {name: NAME}",
        "name: x\nbenchmark: { repeats: 3, name: 'NAME', seed: 1 }\n",
        'name: x\nbenchmark: {"name":"NAME"}\n',
        "name: x\nbenchmark:\n  repeats: 3\n  name: NAME   # in the guest\n",
        "name: x\ntables:\n  a:\n    benchmark: &work {packets: 2, name: NAME}\n",
        "{name: x, benchmark: {name: NAME}}\n",
        "name: x\nbenchmark:\r\n  name: NAME\r\n",
        "name: x\nmacro: {name: NAME}\n",
        "name: x\nmacro:\n  name: NAME\n",
        "name: x\nbenchmark: {name : NAME}\n",
        "name: x\nbenchmark: {name: &work NAME}\n",
    ],
)
def test_a_whole_system_workload_needs_an_image(ready: Checkout, tmp_path: Path, name: str, experiment: str) -> None:
    assert names_an_image(ready, tmp_path, experiment.replace("NAME", name))


def test_ordinary_benchmarks_need_none(ready: Checkout, tmp_path: Path) -> None:
    """In one call, which asks for what makes images if a single one needs an image."""
    experiments = [
        "name: NAME\nbenchmark: {name: gtodbench}\n",
        "name: x\nbenchmark: {name: NAME-like}\n",
        "name: x\nbenchmark: {name: my-NAME}\n",
        "name: x\nbenchmark: {name: gtodbench}  # or {name: NAME}\n",
        "# benchmark: {name: NAME}\nname: x\n",
        "name: x\ntables:\n  NAME: {benchmark: {name: gtodbench}}\n",
        "name: x\nbenchmark: {name: workload, filename: NAME}\n",
    ]
    ordinary = [experiment.replace("NAME", name) for experiment in experiments for name in SYSTEM_WORKLOADS]
    assert not any_names_an_image(ready, tmp_path, ordinary), ordinary
    assert any_names_an_image(ready, tmp_path, [*ordinary, "name: x\nbenchmark: {name: ping-flood}\n"])


@pytest.mark.parametrize(
    ("setting", "needs"),
    [
        ("image=debian-i386", True),
        ("tables.a.image=./mine.yaml", True),
        ("benchmark.name=kernel-build", True),
        ("tables.kernel-build.benchmark.name='command'", True),
        ("benchmark={name: ping-flood, packets: 20}", True),
        ("macro.name=kernel-build", True),
        ("tables.a.macro.scope=vmlinux", True),
        ("macro={name: command}", True),
        ("name=kernel-build", False),
        ("benchmark.name=gtodbench", False),
        ("tables.ping-flood.benchmark.calls=100", False),
        ("benchmark.arguments=[command]", False),
    ],
)
def test_malformed_overrides_are_refused(ready: Checkout, tmp_path: Path, setting: str, needs: bool) -> None:
    assert names_an_image(ready, tmp_path, "name: x\n", "--set", setting) == needs


def test_the_experiments_in_configs_that_need_an_image(ready: Checkout, tmp_path: Path) -> None:
    texts = {path.stem: path.read_text() for path in (ROOT / "configs").glob("*.yaml")}
    in_an_image = ("lkst-events-2005", "markers-2006-macro", "nightly", "one-liners", "programs")
    assert all(names_an_image(ready, tmp_path, texts.pop(name)) for name in in_an_image)
    assert texts
    assert not any_names_an_image(ready, tmp_path, list(texts.values())), list(texts)


def names_an_image(checkout: Checkout, folder: Path, experiment: str, *arguments: str) -> bool:
    """Whether ``lab run`` asks for what makes images."""
    return any_names_an_image(checkout, folder, [experiment], *arguments)


def any_names_an_image(checkout: Checkout, folder: Path, experiments: Sequence[str], *arguments: str) -> bool:
    """Whether it does so for any of them; the list of what makes images names a tool that no host has."""
    lab, images = folder / "lab", folder / "images"
    images.mkdir(exist_ok=True)
    shutil.copy(checkout.folder / "lab", lab)
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(checkout.folder / name, folder)
    (images / "host-packages.txt").write_text("no-such-base  its-base  runs\n")
    (images / "image-packages.txt").write_text("no-such-maker  its-package  makes it\n")
    files = [folder / f"x{number}.yaml" for number in range(len(experiments))]
    for file, experiment in zip(files, experiments, strict=True):
        file.write_bytes(experiment.encode())
    done = checkout.run([str(lab), "run", *map(str, files), *arguments], {})
    assert "missing on this host: no-such-base" in done.stderr
    return "no-such-maker" in done.stderr


def test_what_a_fleet_needs_is_installed_when_it_is_first_asked_for(copying: Checkout) -> None:
    said = "installing Python packages"
    pip = copying.cache / "venv-*.log"

    def installs(*arguments: str) -> bool:
        done = copying.lab(*arguments)
        assert done.returncode == 7, done.stderr
        return said in done.stderr

    assert installs("run", "x.yaml")
    assert not installs("exec", "--", "x", "--fleet")
    assert installs("run", "x.yaml", "--fleet", "local")
    assert not installs("nightly", "--fleet=tls://host:1")
    assert not installs("fleet", "up")
    assert not installs("run", "x.yaml")
    with_it = [log for log in copying.cache.glob(pip.name) if ",fleet]" in log.read_text()]
    assert len(with_it) == 1


def test_packages_are_installed_without_a_byte_of_the_command_s_input(copying: Checkout) -> None:
    (copying.folder / "orchestrator/__init__.py").write_text("import sys\ndef main():\n    print(sys.stdin.read())\n")
    command = [str(copying.folder / "lab"), "fleet", "worker", "--key-from-stdin"]
    done = subprocess.run(
        command, input="a key", capture_output=True, text=True, check=True, env=copying.environment, timeout=600
    )
    assert ("installing Python packages" in done.stderr, done.stdout) == (True, "a key\n")


def test_two_at_once_set_up_once_and_what_is_not_whole_is_made_anew(copying: Checkout, tmp_path: Path) -> None:
    copying.environment = {"PATH": str(copying.tools), "HOME": "/nowhere", "XDG_CACHE_HOME": str(tmp_path)}
    command = [str(copying.folder / "lab")]
    processes = [
        subprocess.Popen(command, env=copying.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    stderr = "".join(process.communicate(timeout=600)[1] for process in processes)
    assert [process.returncode for process in processes] == [7, 7]
    assert stderr.count("installing Python packages") == 1
    # An interpreter that has become another one.
    (stamp,) = tmp_path.glob("orchestrator/venv-*/lab-complete")
    stamp.write_text("/bin/sh\n")
    left_over = stamp.parent / "left-over"
    left_over.touch()
    assert copying.lab().returncode == 7
    assert not left_over.exists()
    # Other pinned versions are another environment, and so is another pyproject.toml: neither is made without Python.
    (copying.folder / "constraints.txt").write_text(CONSTRAINTS + "# changed\n")
    assert "installing Python packages" in copying.lab().stderr
    (copying.folder / "pyproject.toml").write_text(PYPROJECT + "# changed\n")
    copying.tool("python3", "exit 1")
    assert copying.lab().returncode == 3


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("constraints.txt", "no version of anything\n", "constraints.txt"),
        pytest.param(
            "pyproject.toml",
            PYPROJECT.replace("requires = []", 'requires = ["no-such-thing"]'),
            "No matching distribution found for no-such-thing",
            marks=pytest.mark.nightly("another failure of pip's: two seconds"),
        ),
    ],
)
def test_pip_failing_is_quoted_and_leaves_nothing_usable(
    bare: Checkout, ready: Checkout, file: str, content: str, said: str
) -> None:
    make_environments(bare, COPYING_PYTHON, pristine_of(ready))
    (bare.folder / file).write_text(content)
    done = bare.lab(PIP_NO_INDEX="1", PIP_CONFIG_FILE="/dev/null")
    assert done.returncode == 3
    assert said in done.stderr
    assert "could not install the Python packages" in done.stderr
    assert list(bare.cache.glob("venv-*/bin/python"))
    bare.tool("python3", "exit 1")
    assert "missing on this host: python3.11+venv" in bare.lab().stderr


def test_pip_says_in_english_that_a_disk_is_full(copying: Checkout) -> None:
    assert copying.lab(LC_ALL="de_DE.UTF-8").returncode == 7
    (log,) = copying.cache.glob("venv-*.log")
    assert log.read_text().splitlines()[-1] == "in LC_ALL=C"


def test_a_lock_that_cannot_be_written_is_no_full_disk(copying: Checkout) -> None:
    """As one that root has left; another lab may be at work on the environment beside it."""
    assert copying.lab().returncode == 7
    (lock,) = copying.cache.glob("venv-*.lock")
    lock.unlink()
    lock.mkdir()  # root may write to any file
    lock.with_suffix("").joinpath("lab-complete").unlink()
    done = copying.lab()
    assert (done.returncode, done.stderr.splitlines()[-1].startswith(f"lab: cannot write to {lock}; ")) == (3, True)
    assert lock.with_suffix("").is_dir()


def fill_up(folder: str, tools: str, cache: str) -> None:
    """Set up with too little room, for the lock's file too, and then with enough; what is half made is never used."""
    checkout = Checkout(Path(folder), Path(tools), Path(cache))
    for kib in (0, 64, 4096):
        with room(checkout.cache, kib):
            done = checkout.lab()
        said = f"lab: there is no room for the Python packages in the cache folder {cache}: they need 600 MB, and 0 MB"
        assert (done.returncode, said in done.stderr) == (3, True), done.stderr
        assert done.stderr.splitlines()[-1].endswith("name another folder: ORCHESTRATOR_CACHE=/some/folder")
        assert list(checkout.cache.glob("venv-*/lab-complete")) == []
    assert checkout.lab().returncode == 7


@OWN_MOUNTS
def test_a_full_disk_is_told_and_leaves_nothing_usable(copying: Checkout) -> None:
    copying.cache.mkdir()
    mount = ("tmpfs", "size=512m", "tmpfs", copying.cache)
    arguments = (copying.folder, copying.tools, copying.cache)
    assert fork_with_mount(mount, fill_up, *arguments, time_limit=240.0) == ""


def as_ordinary_user(checkout: Checkout) -> subprocess.CompletedProcess[str]:
    if os.geteuid() != 0:
        return checkout.lab("run")
    # With a umask of 077, or from such a clone, all of it is its maker's alone.
    subprocess.run(["chmod", "-R", "a+rX", checkout.folder.parent], check=True)
    setpriv = [shutil.which("setpriv") or "/missing", "--reuid=65534", "--regid=65534", "--clear-groups"]
    return checkout.run([*setpriv, str(checkout.folder / "lab"), "run"], {})


def test_without_root_the_exact_command_is_printed(bare: Checkout) -> None:
    for name in ("qemu-system-x86_64", "gcc", "cc1"):
        (bare.tools / name).unlink()
    (bare.tools / "apt-get").symlink_to("/bin/false")
    bare.tool("python3", "exit 0")
    done = as_ordinary_user(bare)
    assert done.returncode == 3
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1] == (
        "    apt-get update && apt-get install -y --no-install-recommends qemu-system-x86 gcc"
    )


def test_without_apt_the_packages_are_named(bare: Checkout) -> None:
    (bare.tools / "gcc").unlink()
    done = bare.lab()
    assert done.returncode == 3
    assert "missing on this host: gcc" in done.stderr
    assert done.stderr.rstrip().endswith("Debian's packages are called: gcc")


def test_an_old_python_is_missing(bare: Checkout) -> None:
    bare.tool("python3", "exit 1")
    done = bare.lab()
    assert done.returncode == 3
    assert "missing on this host: python3.11+venv" in done.stderr


@pytest.mark.parametrize("root", [True, False])
def test_apt_installs_though_its_update_fails(bare: Checkout, root: bool) -> None:
    (bare.tools / "gcc").unlink()
    bare.tool("python3", "exit 0")
    bare.tool("id", f"echo {0 if root else 1000}")
    bare.tool("sudo", '[ "$1" = -n ] || exit 1\nshift\necho "sudo $1" >>"$LOG"\n[ "$1" = true ] || exec "$@"')
    bare.tool(
        "apt-get",
        f"""\
        echo "apt-get $*; $DEBIAN_FRONTEND" >>"$LOG"
        case $* in
            *update) echo "E: Release file for http://a.invalid/dists/sid/InRelease is expired (since 1d)." >&2
                exit 100 ;;
            *install*) echo output of apt; echo >{bare.tools}/gcc; chmod +x {bare.tools}/gcc ;;
        esac
        """,
    )
    log = bare.cache.parent / "log"
    done = bare.lab(LOG=str(log))
    assert (done.stdout, "output of apt" in done.stderr) == ("", True)
    assert "Release file is expired: http://a.invalid/dists/sid/InRelease; check this host's date" in done.stderr
    # It went on: the next thing to fail is this Python, which makes no environment.
    assert "could not install the Python packages" in done.stderr
    calls = [line for line in log.read_text().splitlines() if line.startswith("apt-get")]
    assert calls[0].endswith("update; ")
    assert calls[1].endswith("install -y --no-install-recommends gcc; noninteractive")
    assert ("sudo true" in log.read_text()) == (not root)


def test_the_lab_has_the_script_install_what_lists_need(bare: Checkout) -> None:
    """As it calls it once it knows what an experiment needs: no environment is made, and no other list is looked at."""
    for name, lines in {"one": "no-such-a  a  one\nsh  dash  a shell\n", "two": "no-such-b  b  two\n"}.items():
        (bare.folder / f"images/{name}-packages.txt").write_text(lines)
    bare.tool("id", "echo 0")
    install = f'for name in a b; do echo >"{bare.tools}/no-such-$name"; chmod +x "{bare.tools}/no-such-$name"; done'
    bare.tool("apt-get", f'echo "$*" >>"$LOG"\ncase $* in *install*) {install} ;; esac')
    log = bare.cache.parent / "log"
    done = bare.lab("install-packages", "one-packages.txt", "two-packages.txt", LOG=str(log))
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "missing on this host: no-such-a no-such-b\n" in done.stderr
    assert log.read_text().splitlines()[-1].endswith(" --no-install-recommends a b")
    log.unlink()
    assert bare.lab("install-packages", "one-packages.txt", LOG=str(log)).returncode == 0
    assert not log.exists()
    assert not list(bare.cache.glob("venv-*"))
    for name in ("../lab", "none-packages.txt", "", "one packages"):
        assert bare.lab("install-packages", name).returncode == 2


@pytest.mark.parametrize(
    ("arguments", "may_install"),
    [
        ("run x.yaml", True),
        ("exec -- true --offline", True),
        ("run x.yaml --offline", False),
        ("run --dry-run x.yaml", False),
        ("doctor", False),
    ],
)
def test_the_lab_knows_whether_the_script_may_install(ready: Checkout, arguments: str, may_install: bool) -> None:
    (ready.folder / "orchestrator/__init__.py").write_text(
        "import os\ndef main():\n    print(os.environ['ORCHESTRATOR_INSTALLER'])\n"
    )
    done = ready.lab(*arguments.split())
    assert done.stdout == (f"{ready.folder}/lab\n" if may_install else "\n"), done.stderr


def test_apt_that_does_not_help(bare: Checkout) -> None:
    (bare.tools / "gcc").unlink()
    bare.tool("id", "echo 0")
    bare.tool("apt-get", "exit 0")
    done = bare.lab()
    assert done.returncode == 3
    remark = f"dpkg -L gcc shows what was installed, and PATH is {bare.tools}"
    assert done.stderr.splitlines()[-1] == f"lab: still missing after installing gcc: gcc; {remark}"
    bare.tool("apt-get", "exit 100")
    done = bare.lab()
    assert done.returncode == 3
    assert "could not install: gcc" in done.stderr


def test_apt_that_brings_no_newer_python(bare: Checkout) -> None:
    bare.tool("python3", "exit 1")
    bare.tool("id", "echo 0")
    bare.tool("apt-get", "exit 0")
    done = bare.lab()
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1] == (
        "lab: still missing after installing python3-venv: python3.11+venv "
        "(python3.11+venv means Python 3.11 or newer with its venv module)"
    )


def test_without_a_home(bare: Checkout) -> None:
    del bare.environment["ORCHESTRATOR_CACHE"]
    for done in (bare.lab(), bare.lab(HOME=""), bare.lab(XDG_CACHE_HOME="relative")):
        assert done.returncode == 3
        assert "HOME is not set" in done.stderr
    done = bare.lab(HOME="/proc/nowhere")
    assert done.returncode == 3
    assert "cannot write to the cache folder /proc/nowhere/.cache/orchestrator" in done.stderr


def test_what_measures_speed_is_measured_alone(ready: Checkout) -> None:
    done = ready.lab("test", "tests/benchmarks")
    assert done.stdout.splitlines()[-1].startswith("pytest --qemu -n 0 -o ")


@pytest.mark.parametrize("arguments", ["--fresh trixie -k x", "--fresh=trixie -k x", "-k x --fresh trixie"])
def test_a_fresh_machine_is_tested_alone_and_its_output_shown_as_it_comes(ready: Checkout, arguments: str) -> None:
    done = ready.lab("test", *arguments.split())
    settings = f"-o cache_dir={ready.cache}/checks/pytest"
    assert done.stdout == f"pytest --qemu -n 0 -s -v tests/fresh {settings} {arguments}\n"


@pytest.mark.parametrize("arguments", ["--fresh x", "--fresh=x", "--fresh=", "--fresh", "--fresh trixie --fresh x"])
def test_a_fresh_machine_is_of_a_release_that_the_lab_knows(bare: Checkout, arguments: str) -> None:
    done = bare.lab("test", *arguments.split())
    assert done.returncode == 2
    assert "--fresh takes bookworm, trixie or sid; found: " in done.stderr
    assert not bare.cache.exists()


@pytest.mark.parametrize("arguments", ["--help", "-h", "--nightly -h", "tests/unit --help", "--fresh --help"])
def test_the_help_of_the_tests_is_all_that_is_printed(bare: Checkout, arguments: str) -> None:
    (bare.folder / "images/host-packages.txt").write_text("no-such-base  its-base  runs\n")
    before = bare.files()
    done = bare.lab("test", *arguments.split())
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Usage: {bare.folder}/lab test [OPTIONS] [PYTEST ARGUMENTS]\n")
    assert {"--nightly", "--failed", "--fresh", "-k"} <= set(done.stdout.split())
    assert bare.files() == before
    assert not bare.cache.exists()


def test_the_help_of_the_tests_names_the_shell_before_the_script(bare: Checkout) -> None:
    done = bare.run(["sh", "-c", 'cd "$1" && sh lab test -h', "-", str(bare.folder)], {})
    assert "\n  sh lab test tests/unit " in done.stdout


def test_pytest_gets_what_is_asked_for_and_its_status_is_the_labs(ready: Checkout) -> None:
    workers = "-n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder"
    before = ready.files()
    for status in (0, 1, 5):
        done = ready.lab("test", "-k", "a or b", "--failed", pytest_status=str(status))
        told = f"pytest --qemu {workers} -o cache_dir={ready.cache}/checks/pytest -k a or b --failed-first\n"
        assert (done.stdout, done.returncode) == (told, status)
    everything = ready.lab("test")
    assert (everything.stdout, everything.stderr) == (
        f"pytest --qemu {workers} -o cache_dir={ready.cache}/checks/pytest\n",
        "",
    )
    assert ready.files() == before


def test_tests_of_ones_own_run_where_the_caller_is(ready: Checkout, tmp_path: Path) -> None:
    """Named relative to the caller's folder, with a test's name behind it, and with no worker of the lab's own."""
    (tmp_path / "my tests").mkdir()
    path = tmp_path / "my tests" / "test_own.py"
    path.touch()
    script = f'cd "{tmp_path}/my tests" && "{ready.folder}/lab" test -k test_own.py test_own.py::test_it[a::b] -x'
    done = ready.run(["sh", "-c", script], {"PYTHONPATH": str(ready.folder)})
    told = f"pytest --qemu -o cache_dir={ready.cache}/checks/pytest -k test_own.py {path}::test_it[a::b] -x\n"
    assert (done.stdout, done.stderr) == (told, "")


def test_the_labs_tests_are_found_from_wherever_the_caller_is(ready: Checkout) -> None:
    test = ready.folder / "tests" / "test_x.py"
    for script in ('cd "$1/tests" && ../lab test test_x.py::test_y', 'cd "$1" && ./lab test tests/test_x.py::test_y'):
        test.parent.mkdir(exist_ok=True)
        test.touch()
        done = ready.run(["sh", "-c", script, "-", str(ready.folder)], {})
        shutil.rmtree(test.parent)
        assert done.stdout.endswith(f" {test}::test_y\n"), done.stderr
        assert " -n auto " in done.stdout


def test_every_night_all_parts_run_though_one_fails(ready: Checkout) -> None:
    def parts(*arguments: str, **statuses: str) -> tuple[list[str], int]:
        done = ready.lab("test", *arguments, **statuses)
        return done.stdout.replace(f" -o cache_dir={ready.cache}/checks/pytest", "").splitlines(), done.returncode

    parallel = "pytest --qemu -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder"
    everything = [
        f"{parallel} --nightly",
        "pytest --qemu -n 0 tests/benchmarks",
        "pytest --qemu -n 0 -s -v tests/fresh --fresh bookworm",
        "pytest --qemu -n 0 -s -v tests/fresh --fresh trixie",
    ]
    assert parts("--nightly") == (everything, 0)
    assert parts("--nightly", pytest_status="1") == (everything, 1)
    assert parts("--nightly", "tests/qemu/x.py") == ([f"{parallel} --nightly tests/qemu/x.py"], 0)


def test_a_signal_ends_a_night_with_the_part_that_runs(ready: Checkout, tmp_path: Path) -> None:
    ended = tmp_path / "ended"
    command = [str(ready.folder / "lab"), "test", "--nightly"]
    environment = {**ready.environment, "pytest_waits": str(ended)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as lab:
        assert lab.stdout is not None
        assert lab.stdout.readline().endswith("--nightly\n")
        lab.terminate()
        assert lab.stdout.read() == ""
        assert lab.wait(timeout=600) == 1
    assert ended.read_text() == "SIGTERM"
