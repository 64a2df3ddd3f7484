"""A key in a wrong place: the error names the mistake, and no output repeats the key."""

import base64
import json
import logging
import subprocess
from pathlib import Path

import pytest

from ares.cli.main import run
from ares.client.connect import connect
from ares.cluster.new_cluster import InitPlan, create
from ares.cluster.settings import Settings
from ares.model.errors import BadInput
from ares.platform.interpreter import python
from ares.security.keys import SecretKey

Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def z85(raw: bytes) -> str:
    words = [int.from_bytes(raw[at : at + 4], "big") for at in range(0, len(raw), 4)]
    return "".join(Z85[word // 85**place % 85] for word in words for place in (4, 3, 2, 1, 0))


SECRET = SecretKey(bytes(range(7, 39)))
HEX = SECRET.secret.hex()
FORMS = {
    "as it is written": HEX,
    "in large letters": HEX.upper(),
    "with spaces around": f"  {HEX}\t",
    "with a line's end": f"{HEX}\n",
    "too short": HEX[:61],
    "too long": HEX + "0a",
    "half of it": HEX[:32],
    "with 0x": f"0x{HEX}",
    "with colons": ":".join(HEX[at : at + 2] for at in range(0, 64, 2)),
    "in quotes": f"'{HEX}'",
    "base 64": base64.b64encode(SECRET.secret).decode(),
    "base 64 with a slash": base64.b64encode(b"\xff\xef\xff" + SECRET.secret[3:]).decode(),
    "Z85": z85(SECRET.secret),
    "Z85 with a slash": z85(b"\x03\x9b\x65\x01" + SECRET.secret[4:])[:4]
    + "/"
    + z85(SECRET.secret)[5:],
    "with a zero": f"{HEX}\0",
}


def shows(text: str, form: str) -> bool:
    """Return whether the text has any ten characters of the key, in any case."""
    told, key = text.lower(), form.strip().lower()
    return any(key[at : at + 10] in told for at in range(len(key) - 9))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return create(tmp_path / "cluster", InitPlan(servers=3, consensus=1, security="curve"))


@pytest.mark.parametrize("way", ["argument", "variable", "file"])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
async def test_a_key_in_place_of_its_path_is_never_repeated(
    settings: Settings,
    form: str,
    way: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.delenv("ARES_KEY", raising=False)
    if way == "variable":
        if "\0" in form:
            return
        monkeypatch.setenv("ARES_KEY", form)
    elif way == "file":
        text = settings.path.read_text()
        settings.path.write_text(
            text.replace('key = "keys/admin.secret"', f"key = {json.dumps(form)}")
        )
    with pytest.raises(BadInput) as refused:
        await connect(settings.path, key=form if way == "argument" else None)
    assert not shows(str(refused.value), form)
    assert not shows(caplog.text, form)
    assert "client.key" in str(refused.value)


@pytest.mark.parametrize("name", ["public_key", "decision_key", "keys", "consensus_password"])
@pytest.mark.parametrize(
    "form", ["as it is written", "in large letters", "too short", "Z85", "base 64"]
)
def test_a_key_elsewhere_in_the_cluster_file_is_never_repeated(
    settings: Settings, name: str, form: str
) -> None:
    lines = settings.path.read_text().splitlines()
    if name == "keys":
        lines.insert(0, f"keys = {json.dumps(FORMS[form])}")
    else:
        at = next(at for at, line in enumerate(lines) if line.startswith(f"{name} = "))
        lines[at] = f"{name} = {json.dumps(FORMS[form])}"
    settings.path.write_text("\n".join(lines))
    with pytest.raises(BadInput) as refused:
        Settings.load(settings.path).check_secrets()
    assert not shows(str(refused.value), FORMS[form])


def test_a_password_in_place_of_its_path_is_never_repeated(settings: Settings) -> None:
    settings.path.write_text(
        settings.path.read_text().replace('"secrets/consensus.password"', '"Tr0ub4dor&3-horse"')
    )
    with pytest.raises(
        BadInput, match=r"consensus_password: .* cannot be read: No such file"
    ) as refused:
        Settings.load(settings.path).password()
    assert not shows(str(refused.value), "Tr0ub4dor&3-horse")


def test_a_path_that_is_only_mistyped_is_repeated(settings: Settings) -> None:
    assert settings.security is not None
    with pytest.raises(BadInput, match=r"bob\.secret cannot be read: No such file"):
        settings.security.client_key(str(settings.security.secret_path("bob")))


@pytest.mark.parametrize(
    "words",
    [
        ["{}"],
        ["--json", "{}"],
        ["read", "{}", "{}", "{}"],
        ["status", "-k{}"],
        ["--timeout", "{}", "status"],
    ],
)
@pytest.mark.parametrize("form", ["as it is written", "in large letters", "too short", "Z85"])
def test_a_key_among_the_words_of_a_command_is_never_repeated(words: list[str], form: str) -> None:
    said = subprocess.run(
        python("-m", "ares", *(word.format(FORMS[form]) for word in words)),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert said.returncode != 0
    assert not shows(said.stdout + said.stderr, FORMS[form])


@pytest.mark.parametrize("form", ["as it is written", "in large letters", "too short", "too long"])
@pytest.mark.parametrize(
    "words",
    [
        "-c {} ls",
        "-c {}/x ls",
        "up {}",
        "down {}",
        "server {} --id s0",
        "server CLUSTER --id {}",
        "prepare CLUSTER {}",
        "init DIR --host {}",
        "init DIR --etcd {}:1",
        "-c CLUSTER keys new x --role {}",
        "-c CLUSTER keys new x -o {}/x",
        "-c CLUSTER keys revoke {}",
        "-c CLUSTER reconfig --servers {}",
        "-c CLUSTER --timeout 0.1 ls --domain {}",
        "-c CLUSTER --timeout 0.1 log-level {}",
        "-c CLUSTER --timeout 0.1 get x -o {}/x",
        "--json -c CLUSTER put {} x",
        "check-history {}",
    ],
)
def test_a_key_in_a_word_that_a_command_took_is_never_repeated(
    settings: Settings, words: str, form: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    places = {"CLUSTER": str(settings.path), "DIR": str(tmp_path / "new")}
    status = run([places.get(word, word.format(FORMS[form])) for word in words.split()])
    said = "".join(capfd.readouterr())
    assert status != 0
    assert said
    assert not shows(said, FORMS[form])


@pytest.mark.parametrize(
    "name",
    ["identity", "address", "http", "raft", "durability", "security", "transport", "id", "name"],
)
@pytest.mark.parametrize("form", ["as it is written", "in large letters", "too short", "too long"])
def test_a_key_in_place_of_another_value_of_the_cluster_file_is_never_repeated(
    settings: Settings, name: str, form: str
) -> None:
    if name == "name" and form != "too long":
        return  # a name may have 64 letters and digits
    value = f"{name} = {json.dumps(FORMS[form])}"
    lines = settings.path.read_text().splitlines()
    at = [at for at, line in enumerate(lines) if line.startswith(f"{name} = ")]
    lines = (
        [value if number in at[:1] else line for number, line in enumerate(lines)]
        if at
        else [value, *lines]
    )
    settings.path.write_text("\n".join(lines))
    with pytest.raises(BadInput) as refused:
        Settings.load(settings.path)
    assert not shows(str(refused.value), FORMS[form])
