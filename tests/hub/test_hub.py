"""Policies packed, pushed and pulled, against a stand-in for the Hub on this computer."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import torch

from genpolicy import load_policy
from genpolicy.cli import main
from genpolicy.config import read_yaml
from genpolicy.errors import CheckpointError
from genpolicy.files import DiskFullError, disk_full, write_atomic
from tests.play.engine_policies import save_diffusion

pytest.importorskip("huggingface_hub", reason="needs the extra [hub]")

from genpolicy_hub import hub
from genpolicy_hub.packing import model_card, pack

pytestmark = pytest.mark.usefixtures("warm_start")

GAME = "connect:rows=3,cols=3,k=3,gravity=false"


class StandIn(ThreadingHTTPServer):
    """Answers what huggingface_hub asks of the Hub when a repository is made, filled and read."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.paths: list[str] = []
        self.breaks_off = ""
        """The file of which half is sent, if any."""
        self.instead: tuple[int, bytes] | None = None
        """What is answered in place of everything: a status and a body."""
        self.commit = "1" * 40

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Answers(BaseHTTPRequestHandler):
    server: StandIn

    def do_POST(self) -> None:
        path, body = urlsplit(self.path).path, self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.paths.append(path)
        if path == "/api/repos/create":
            made = json.loads(body)
            name = f"{made['organization']}/{made['name']}" if made.get("organization") else made["name"]
            self.server.repositories.setdefault(name, {})
            return self._json({"url": f"{self.server.address}/{name}"})
        if path == "/api/validate-yaml":
            return self._json({"errors": [], "warnings": []})
        name, verb = "/".join(path.split("/")[3:5]), path.split("/")[5]
        files = self.server.repositories[name]
        if verb == "preupload":
            asked = json.loads(body)["files"]
            ways = [{"path": each["path"], "uploadMode": "regular", "shouldIgnore": False} for each in asked]
            return self._json({"files": ways})
        for line in map(json.loads, body.splitlines()):
            if line["key"] == "file":
                files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
        return self._json({"commitOid": "1" * 40, "commitUrl": f"{self.server.address}/{name}/commit/1"})

    def do_GET(self) -> None:
        if self.server.instead is not None:
            return self._send(self.server.instead[1], self.server.instead[0], {"Content-Type": "text/html"})
        path = unquote(urlsplit(self.path).path)
        self.server.paths.append(path)
        parts = path.strip("/").split("/")
        name = "/".join(parts[2:4] if parts[0] == "api" else parts[:2])
        files = self.server.repositories.get(name)
        if files is None:
            return self._json({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})
        if parts[0] == "api" and "tree" in parts:
            return self._json(
                [{"type": "file", "path": each, "size": len(files[each]), "oid": "1" * 40} for each in files]
            )
        if parts[0] == "api":
            listed = [{"rfilename": each} for each in files]
            return self._json(
                {"id": name, "modelId": name, "sha": self.server.commit, "siblings": listed, "private": False}
            )
        content = files.get("/".join(parts[4:]))
        if content is None:
            return self._json({"error": "Entry not found"}, 404, {"X-Error-Code": "EntryNotFound"})
        return self._send(
            content, 200, {"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "X-Repo-Commit": self.server.commit}
        )

    do_HEAD = do_GET

    def _json(self, answer: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self._send(json.dumps(answer).encode(), status, {"Content-Type": "application/json", **(headers or {})})

    def _send(self, content: bytes, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            half = self.server.breaks_off and self.path.endswith(self.server.breaks_off)
            self.wfile.write(content[: len(content) // 2] if half else content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[StandIn]:
    made = StandIn()
    threading.Thread(target=made.serve_forever, daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", made.address)
    monkeypatch.setenv("HF_TOKEN", "hf_of_a_test")
    monkeypatch.setenv(hub.CACHE, str(tmp_path / "cache"))
    hub.folder_of.cache_clear()
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_diffusion(tmp_path_factory.mktemp("own") / "small", GAME)


def test_a_packed_policy_is_half_as_large_and_plays(policy: Path, tmp_path: Path) -> None:
    before = json.loads((policy / "provenance.json").read_text())
    folders = ["/home/me/games", "me/more", "sample:connect"]
    config = {"data": {"folder": folders}, "out": "me/first", "init_from": "hf:ann/policy", "teacher": "../me/old"}
    dataset = {"folder": "me/games", "parts": [{"folder": each, "oracle": {"name": "a/b"}} for each in folders]}
    (policy / "provenance.json").write_text(json.dumps({**before, "config": config, "dataset": dataset}))
    packed = pack(policy, tmp_path / "packed", figures="| it wins | 1 % |")
    sizes = [(folder / "model.safetensors").stat().st_size for folder in (policy, packed)]
    assert sizes[1] < 0.6 * sizes[0]
    state = load_policy(policy).game.parse()
    ours, theirs = (load_policy(folder).decide([state])[0] for folder in (policy, packed))
    assert theirs.policy is not None
    assert ours.policy is not None
    assert all(theirs.policy[move] == pytest.approx(chance, abs=0.01) for move, chance in ours.policy.items())
    card = (packed / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: genpolicy\n")
    assert "| it wins | 1 % |" in card
    assert "| data | games, more, sample:connect |" in card
    facts = json.loads((packed / "provenance.json").read_text())
    assert "me/" not in card + json.dumps(facts)
    assert facts["config"] == {
        **config,
        "data": {"folder": ["games", "more", folders[2]]},
        "out": "first",
        "teacher": "old",
    }
    assert facts["dataset"]["parts"][1] == {"folder": "more", "oracle": {"name": "a/b"}}


@pytest.mark.parametrize("name", ["provenance.json", "README.md", "config.yaml"])
def test_a_copy_that_a_full_disk_cut_short_is_finished_by_the_same_command(
    name: str, policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = pack(policy, tmp_path / "whole")

    def write(path: Path, data: bytes) -> None:
        if path.name == name:
            raise disk_full(path)
        write_atomic(path, data)

    with monkeypatch.context() as patched:
        patched.setattr("genpolicy_hub.packing.write_atomic", write)
        with pytest.raises(DiskFullError):
            pack(policy, tmp_path / "cut")
    pack(policy, tmp_path / "cut")
    assert all((tmp_path / "cut" / file.name).read_bytes() == file.read_bytes() for file in whole.iterdir())


def test_a_local_path_within_a_spelling_is_cut_to_its_name(policy: Path, tmp_path: Path) -> None:
    facts = json.loads((policy / "provenance.json").read_text())
    oracle = {
        "policy": "mix:mcts%3Aengine%253A/home/me/fish%253Fnodes=5,engine:~me/fish?EvalFile=/home/me/a.nnue&nodes=5",
        "from": "https://example.org/me",
    }
    (tmp_path / "own").mkdir()
    for file in policy.iterdir():
        (tmp_path / "own" / file.name).write_bytes(file.read_bytes())
    (tmp_path / "own" / "provenance.json").write_text(json.dumps({**facts, "oracle": oracle}))
    packed = pack(tmp_path / "own", tmp_path / "packed")
    assert json.loads((packed / "provenance.json").read_text())["oracle"] == {
        "policy": "mix:mcts%3Aengine%253Afish%253Fnodes=5,engine:fish?EvalFile=a.nnue&nodes=5",
        "from": "https://example.org/me",
    }


def test_weights_are_averaged_with_those_that_a_policy_began_with(policy: Path, tmp_path: Path) -> None:
    other = load_policy(policy)
    with torch.no_grad():
        for parameter in other.learner.network.parameters():
            parameter.add_(0.5)
    other.save_pretrained(tmp_path / "other")
    assert main(["pack", str(tmp_path / "other"), "--average", str(policy), "--out", str(tmp_path / "mean")]) == 0
    mean, first = load_policy(tmp_path / "mean"), load_policy(policy)
    for found, given in zip(mean.learner.network.parameters(), first.learner.network.parameters(), strict=True):
        torch.testing.assert_close(found, given + 0.25, rtol=1e-2, atol=1e-3)
    facts = json.loads((tmp_path / "mean" / "provenance.json").read_text())
    assert facts["averaged_with"] == read_yaml(policy / "config.yaml")["weights_sha256"]


def test_options_in_which_the_policies_of_a_mean_differ_are_named(policy: Path, tmp_path: Path) -> None:
    # Of one that knew PAD and one that did not, the mean imagined a tenth of its positions wrong.
    shutil.copytree(policy, tmp_path / "other")
    config = re.sub("network_sha256: .*\n", "", (tmp_path / "other" / "config.yaml").read_text())
    assert config.count("dropout: 0.0") == 1
    (tmp_path / "other" / "config.yaml").write_text(config.replace("dropout: 0.0", "dropout: 0.1"))
    with pytest.warns(UserWarning, match=r"other: differs from .* in learner\.network\.dropout; measure"):
        pack(policy, tmp_path / "mean", average=tmp_path / "other")


@pytest.mark.parametrize(("game", "extras"), [("chess", "web,chess"), ("connect:rows=3,cols=3,k=3", "web")])
def test_the_card_says_what_a_game_needs(game: str, extras: str) -> None:
    card = model_card({"game": game, "policy": "one_step"}, {})
    assert f"`pip install 'genpolicy[{extras}]'`" in card


@pytest.mark.parametrize(
    "facts",
    [
        {"dataset": [1], "config": 3, "versions": 3},
        {"dataset": {"folder": 5, "parts": 7}, "config": {"data": []}, "oracle": "x", "step": "y"},
        {"dataset": {"parts": [None, {"oracle": {"limits": 4}}]}},
    ],
)
def test_provenance_of_another_shape_is_left_out_of_the_card(
    facts: dict[str, Any], policy: Path, tmp_path: Path
) -> None:
    strange = Path(shutil.copytree(policy, tmp_path / "strange"))
    (strange / "provenance.json").write_text(json.dumps(facts))
    assert "# A diffusion policy" in (pack(strange, tmp_path / "packed") / "README.md").read_text()


def test_what_cannot_be_packed_is_said(policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed = pack(policy, tmp_path / "packed", half=False)
    with pytest.raises(ValueError, match="holds a policy already"):
        pack(policy, packed)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "README.md").write_text("my project")
    with pytest.raises(ValueError, match=r"holds README.md, which a policy has too; name another folder"):
        pack(policy, tmp_path / "mine")
    assert (tmp_path / "mine" / "README.md").read_text() == "my project"
    large = load_policy(policy)
    with torch.no_grad():
        next(iter(large.learner.parameters())).fill_(1e6)  # type: ignore[attr-defined]
    large.save_pretrained(tmp_path / "large")  # type: ignore[attr-defined]
    with pytest.raises(CheckpointError, match="does not fit into float16; pack it with --float32"):
        pack(tmp_path / "large", tmp_path / "never")
    assert not (tmp_path / "never").exists()
    assert main(["pack", str(tmp_path / "nothing"), "--out", str(tmp_path / "never")]) == 2
    assert "nothing: no such folder" in capsys.readouterr().err
    for option, name in [("--policy", "random"), ("--policy", f"{policy}?num_steps=2"), ("--average", "random")]:
        assert main(["pack", "--policy", str(policy), option, name, "--out", str(tmp_path / "never")]) == 2
        assert f"{option} {name}: is not a saved policy; name its folder" in capsys.readouterr().err
    (tmp_path / "table.md").write_bytes(b"\xff")
    figures = ["--figures", str(tmp_path / "table.md")]
    assert main(["pack", str(policy), "--out", str(tmp_path / "never"), *figures]) == 2
    assert "table.md: is not text in UTF-8" in capsys.readouterr().err


def test_pushed_and_pulled_it_is_the_same(
    policy: Path, server: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["push", str(policy), "me/mine", "--float32"]) == 0
    assert f"{server.address}/me/mine" in capsys.readouterr().out
    assert set(server.repositories["me/mine"]) == set(hub.FILES)
    server.repositories["me/mine"]["weights.pkl"] = b"never fetched"
    assert main(["pull", "me/mine", "--out", str(tmp_path / "copy")]) == 0
    assert not (tmp_path / "copy" / "weights.pkl").exists()
    pulled, own = load_policy("hf:me/mine?num_steps=2"), load_policy(policy, num_steps=2)
    states = [own.game.parse()]
    assert [each.move for each in pulled.decide(states)] == [each.move for each in own.decide(states)]
    assert load_policy("mcts:hf:me/mine?simulations=4&value=rollout").decide(states)[0].move >= 0
    assert read_yaml(tmp_path / "copy" / "config.yaml")["game"] == GAME
    # Without the Hub, what was fetched before still opens; what was not is told.
    server.shutdown()
    server.server_close()
    hub.folder_of.cache_clear()
    assert load_policy("hf:me/mine").game.spec == GAME
    with pytest.raises(ValueError, match="cannot be reached or broke off"):
        load_policy("hf:me/other")
    assert main(["push", str(policy), "me/mine"]) == 2
    assert "cannot be reached" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("files", "name", "message"),
    [
        (None, "me/none", "no such repository, or a private one"),
        ({"pytorch_model.bin": b"pickle"}, "me/mine", "holds no policy.*pickled weights are never read"),
        ({"config.yaml": b"policy: diffusion\nformat: 1\n"}, "me/mine", "holds no policy"),
        ({"config.yaml": b"model_type: bert\n", "model.safetensors": b""}, "me/mine", "not a policy's folder"),
        ({}, "mine", "write OWNER/NAME"),
        ({}, "me/../../mine", "write OWNER/NAME"),
    ],
)
def test_what_cannot_be_pulled_is_said(
    files: dict[str, bytes] | None, name: str, message: str, server: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    if files is not None:
        server.repositories["me/mine"] = files
    with pytest.raises(ValueError, match=message):
        hub.pull(name)
    assert main(["play", "--policy", f"hf:{name}"]) == 2
    assert "genpolicy: error: " in capsys.readouterr().err


def test_a_policy_of_ones_own_is_not_replaced_by_one_that_is_pulled(
    policy: Path, server: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["push", str(policy), "me/mine"]) == 0
    weights = (policy / "model.safetensors").read_bytes()
    assert main(["pull", "me/mine", "--out", str(policy)]) == 2
    assert "holds files that were not pulled" in capsys.readouterr().err
    assert (policy / "model.safetensors").read_bytes() == weights
    for _ in range(2):  # what was pulled before is brought up to date
        assert main(["pull", "me/mine", "--out", str(tmp_path / "copy")]) == 0


def test_a_folder_of_one_repository_is_not_taken_for_another(
    policy: Path, server: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["push", str(policy), "me/mine"]) == 0
    copy = str(tmp_path / "copy")
    assert main(["pull", "me/typo", "--out", copy]) == 2
    assert main(["pull", "me/mine", "--out", copy]) == 0
    server.repositories["me/other"] = {"README.md": b"no policy"}
    server.repositories["me/second"] = {name: (policy / name).read_bytes() for name in hub.FILES[:2]}
    capsys.readouterr()
    for name in ("me/other", "me/second", "me/mine@v2"):
        assert main(["pull", name, "--out", copy]) == 2
        said = capsys.readouterr()
        assert f"copy: holds hf:me/mine; choose another folder for hf:{name}" in said.err
        assert not said.out
    server.shutdown()  # without the Hub, what is there counts only where it is what was asked for
    server.server_close()
    assert main(["pull", "me/third", "--out", copy]) == 2
    assert main(["pull", "me/mine", "--out", copy]) == 0


def test_half_a_download_is_finished_the_next_time(policy: Path, server: StandIn) -> None:
    assert main(["push", str(policy), "me/mine"]) == 0
    folder = hub.pull("me/mine")
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").unlink()
    assert (hub.pull("me/mine") / "model.safetensors").read_bytes() == whole


def test_a_download_that_breaks_off_leaves_no_policy_of_two_versions(
    policy: Path, server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # between huggingface_hub's tries
    files = {name: (policy / name).read_bytes() for name in hub.FILES[:2]}
    server.repositories["me/mine"] = files
    folder = hub.pull("me/mine")
    server.repositories["me/mine"] = {name: content + b"\n" for name, content in files.items()}
    server.breaks_off, server.commit = "model.safetensors", "2" * 40
    with pytest.raises(ValueError, match="cannot be reached or broke off"):
        hub.pull("me/mine")
    assert not ((folder / "config.yaml").exists() and (folder / "model.safetensors").exists())
    server.repositories["me/mine"], server.breaks_off, server.commit = files, "", "3" * 40
    assert (hub.pull("me/mine") / "model.safetensors").read_bytes() == files["model.safetensors"]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((200, b"<html>Welcome to the hotel</html>"), "did not answer as a Hub does"),
        ((429, b"slowly"), r"refused \(429\); try again later"),
        ((401, b"who"), r"refused \(401\); log in"),
    ],
)
def test_answers_that_are_not_the_hubs_are_said(answer: tuple[int, bytes], message: str, server: StandIn) -> None:
    server.instead = answer
    with pytest.raises(ValueError, match=message):
        hub.pull("me/mine")
