"""The fact folders travel with the package, and a hub id brings config.json alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

import flopcalc
from flopcalc import facts

ROOT = Path(flopcalc.__file__).parent.parent
FACTS = [file.relative_to(ROOT).as_posix() for name in ("registry", "hardware") for file in (ROOT / name).rglob("*.*")]


def run(*args: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "PYTHONPATH"))}
    return subprocess.run(args, capture_output=True, text=True, cwd=cwd, env={**clean, **environment}, timeout=120)


# --- wheel and sdist -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist of this checkout."""
    pytest.importorskip("hatchling")
    if not facts.is_checkout() or not (ROOT / "pyproject.toml").is_file():
        pytest.skip("built from a checkout alone")
    folder = tmp_path_factory.mktemp("dist")
    built = run(sys.executable, "-m", "hatchling", "build", "-d", str(folder), cwd=ROOT)
    assert built.returncode == 0, built.stderr
    return folder


@pytest.fixture(scope="module")
def installed(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder elsewhere into which the wheel was installed."""
    target = tmp_path_factory.mktemp("elsewhere")
    (wheel,) = dist.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", str(target)]
    result = run(*pip, str(wheel), cwd=target)
    assert result.returncode == 0, result.stderr
    return target


def flopcalc_of(installed: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flopcalc", *args]
    return run(*command, cwd=installed, PYTHONPATH=str(installed), HF_HUB_OFFLINE="1")


def test_an_installed_wheel_counts_a_bundled_model_offline(installed: Path) -> None:
    result = flopcalc_of(installed, "estimate", "Qwen/Qwen3-30B-A3B", "--seq-len", "8192", "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["rows"][0]["flops"] == 307_843_559_325_696


def test_an_installed_wheel_has_every_fact_and_all_numbers(installed: Path) -> None:
    data = installed / "flopcalc" / "facts_data"
    assert {file.relative_to(data).as_posix() for file in data.rglob("*.*")} == set(FACTS)
    check = flopcalc_of(installed, "registry", "check")
    assert (check.returncode, check.stderr) == (0, ""), check.stdout[:2000]
    assert (installed / "flopcalc" / "py.typed").is_file()


def test_an_installed_registry_is_not_written(installed: Path) -> None:
    result = flopcalc_of(installed, "registry", "update")
    assert result.returncode == 2
    assert "read-only" in result.stderr and "checkout" in result.stderr


def test_the_sdist_holds_the_facts(dist: Path) -> None:
    (archive,) = dist.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    assert set(FACTS) | {"pyproject.toml", "LICENSE", "README.md"} <= names


# --- the hub ---------------------------------------------------------------------------------------

CONFIGS: dict[str, bytes] = {
    "org/tiny": b'{"model_type": "llama", "num_hidden_layers": 2, "auto_map": {"AutoConfig": "evil.Config"}}',
    "plain": b'{"model_type": "llama", "num_hidden_layers": 2}',
    "org/broken": b"<html>",
}


class Hub(BaseHTTPRequestHandler):
    """The few answers of a model hub that fetching one file needs."""

    asked: ClassVar[list[str]] = []

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.wfile.write(self.answer())

    def answer(self) -> bytes:
        self.asked.append(self.path)
        name, _, file = self.path.strip("/").partition("/resolve/main/")
        body = CONFIGS.get(name, b"") if file == "config.json" else b""
        self.send_response(200 if body else 404)
        if body:
            self.send_header("X-Repo-Commit", "0" * 40)
            self.send_header("ETag", f'"{hash(body):x}"')
        else:
            self.send_header("X-Error-Code", "RepoNotFound")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        return body

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[str]:
    """The address of a hub on this machine's loopback."""
    Hub.asked.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def estimate(tmp_path: Path, name: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flopcalc", "estimate", name, "--seq-len", "1024", "--json"]
    (tmp_path / "cwd").mkdir(exist_ok=True)
    return run(*command, cwd=tmp_path / "cwd", PYTHONPATH=str(ROOT), HF_HOME=str(tmp_path / "hf"), **environment)


@pytest.mark.parametrize("name", ["org/tiny", "plain"])
def test_a_hub_id_brings_config_json_and_nothing_else(endpoint: str, tmp_path: Path, name: str) -> None:
    expected = flopcalc.estimate_flops({"model_type": "llama", "num_hidden_layers": 2}, [1024])
    result = estimate(tmp_path, name, HF_ENDPOINT=endpoint)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["rows"][0]["flops"] == expected
    asked = {path for path in Hub.asked if name in path}  # not what the client asks for its own sake
    assert asked == {f"/{name}/resolve/main/config.json"}  # no code of the repository, no weights

    again = estimate(tmp_path, name, HF_ENDPOINT=endpoint, HF_HUB_OFFLINE="1")  # from its cache
    assert json.loads(again.stdout) == json.loads(result.stdout)


@pytest.mark.parametrize(
    ("name", "offline", "says"),
    [
        ("org/missing", "0", "not a bundled model"),
        ("org/broken", "0", "not a readable config.json"),
        ("org/tiny", "1", "could not be fetched"),  # nothing cached and no network
    ],
)
def test_what_the_hub_cannot_give_is_one_line(
    endpoint: str, tmp_path: Path, name: str, offline: str, says: str
) -> None:
    result = estimate(tmp_path, name, HF_ENDPOINT=endpoint, HF_HUB_OFFLINE=offline)
    assert result.returncode == 2
    assert says in result.stderr and name in result.stderr
    assert result.stderr.count("\n") == 1 and result.stdout == ""


def test_a_bundled_name_asks_no_hub(endpoint: str, tmp_path: Path) -> None:
    assert estimate(tmp_path, "Qwen/Qwen3-30B-A3B", HF_ENDPOINT=endpoint).returncode == 0
    assert not Hub.asked
