"""``slotferry user``: users of clients that topom keeps for all proxies."""

import hashlib
import sys
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from slotferry import completing
from slotferry.calls import Answer
from slotferry.operator import options
from slotferry.output import answer, fail, say, table
from slots.forms import Form

app = typer.Typer(no_args_is_help=True, help="Add, change, remove and list users of clients, for all proxies at once.")

LONGEST_PASSWORD = 64 * 1024
SECRETS = ("password", "password_sha256")
WHY = {
    "own": "that proxy has a user of this name itself, who holds there",
    "unknown": "that proxy does not know all of its fields; upgrade it",
    "full": "too many users with limits are there",
}
NO_FIELD = "write FIELD=VALUE, such as read_only=true; FIELD= brings it back to its default"

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="The user's name, as clients give it with AUTH.", autocompletion=completing.users
    ),
]


@app.command("list")
def list_users(
    topom: options.Topom = options.DEFAULT_TOPOM, token: options.Token = "", form: options.Output = Form.TABLE
) -> None:
    """Show the users that topom keeps, and the proxies at which they are not as here."""
    found = options.ask(topom, token, lambda client: client.users())
    answer(found, form, lambda: _say_users(found))


@app.command("show")
def show_user(
    name: Name,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    form: options.Output = Form.TABLE,
) -> None:
    """Show one user, without its password."""
    found = options.ask(topom, token, lambda client: client.user(name))
    answer(found, form, lambda: table(("field", "value"), _rows(found), title=name))


@app.command("set")
def set_user(
    name: Name,
    fields: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FIELD=VALUE...]",
            help="Fields of the setting `users` of a proxy, such as read_only=true databases=0,3 rules='~app:* +@all'. "
            "FIELD= brings one back to its default. Others stay as they are.",
        ),
    ] = None,
    password: Annotated[
        bool, typer.Option("--password", help="Ask for its password; without a terminal, read it from standard input.")
    ] = False,
    password_file: Annotated[
        Path | None,
        typer.Option("--password-file", metavar="FILE", help="Read its password from the first line of a file."),
    ] = None,
    hashed: Annotated[
        bool, typer.Option("--sha256", help="What is read is the SHA-256 of the password, 64 hexadecimal digits.")
    ] = False,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    form: options.Output = Form.TABLE,
) -> None:
    """Add a user, or change one, at all proxies at once. Only the SHA-256 of its password leaves this process."""
    named = dict(_field(one) for one in fields or ())
    if password or password_file is not None:
        named["password_sha256"] = _digest(_read(password_file), hashed)
    elif hashed:
        raise fail("--sha256 goes with --password or --password-file")
    found = options.ask(topom, token, lambda client: client.set_user(name, named))
    answer(found, form, lambda: _say_done(found, f"user {name} is set", name))


@app.command("remove")
def remove_user(
    name: Name,
    opens: Annotated[
        bool,
        typer.Option("--open", help="Also `default`: proxies without users of their own then let every client in."),
    ] = False,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    form: options.Output = Form.TABLE,
) -> None:
    """Remove a user, and close its connections. A proxy that has one of this name itself keeps that one."""
    found = options.ask(topom, token, lambda client: client.remove_user(name, opens))
    answer(found, form, lambda: _say_done(found, f"user {name} removed", name))


def _field(text: str) -> tuple[str, Any]:
    """The name and the value of a field."""
    name, given, value = text.partition("=")
    if name in SECRETS:
        raise fail("other users see what is on a command line; give a password with --password or --password-file")
    if not given or not name:
        raise fail(f"{text!r} is no field; {NO_FIELD}")
    return name, _value(name, value) if value else None


def _value(name: str, text: str) -> Any:
    """A field's value: what its type takes of a value in TOML, of text, and of a list with commas."""
    import tomllib

    from pydantic import TypeAdapter, ValidationError

    from slots.users import UserSettings

    def read(part: str) -> Any:
        try:
            return tomllib.loads(f"value = {part}")["value"]
        except tomllib.TOMLDecodeError:
            return part.strip()

    values = (read(text), text, [read(part) for part in text.split(",")])
    if (known := UserSettings.model_fields.get(name)) is None:
        return values[0]  # a later topom may know it
    takes: TypeAdapter[Any] = TypeAdapter(cast(Any, known.annotation))
    for value in values:
        try:
            takes.validate_python(value, strict=True)
        except ValidationError:
            continue
        return value
    return values[0]  # topom says what is wrong


def _read(file: Path | None) -> str:
    if file is not None:
        try:
            with file.open(encoding="utf-8", errors="surrogateescape") as opened:
                return opened.readline(LONGEST_PASSWORD).rstrip("\r\n")
        except OSError as error:
            raise fail(f"the password cannot be read: {error}") from None
    if sys.stdin.isatty():
        return str(typer.prompt("password", hide_input=True, confirmation_prompt=True))
    line = sys.stdin.buffer.readline(LONGEST_PASSWORD)
    return line.decode(errors="surrogateescape").rstrip("\r\n")


def _digest(given: str, hashed: bool) -> str:
    if not given:
        raise fail("the password is empty; for a user without one, say no_password=true")
    return given.strip() if hashed else hashlib.sha256(given.encode(errors="surrogateescape")).hexdigest()


def _rows(user: Answer) -> list[tuple[str, str]]:
    way = "kept, not shown" if user["password"] else "any, or none for the user default"
    return [("password", way), *((field, _shown(value)) for field, value in sorted(user["fields"].items()))]


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _say_users(found: Answer) -> None:
    if not found["users"]:
        say("topom keeps no users; proxies may have some in their settings")
    else:
        rows = [
            (
                user["name"],
                "needed" if user["password"] else "any",
                " ".join(f"{field}={_shown(value)}" for field, value in sorted(user["fields"].items())),
            )
            for user in found["users"]
        ]
        table(("user", "password", "fields"), rows, title="users")
    _say_proxies(found, [(one["proxy_id"], one["name"], one["cause"]) for one in found["left_out"]])


def _say_done(found: Answer, done: str, name: str) -> None:
    say(done)
    _say_proxies(found, [(one["proxy_id"], name, one["cause"]) for one in found["left_out"] if one["name"] == name])


def _say_proxies(found: Answer, left_out: list[tuple[int, str, str]]) -> None:
    for proxy_id, name, why in left_out:
        say(f"proxy {proxy_id} leaves out user {name}: {WHY.get(why, why)}")
    for one in found["behind"]:
        say(f"proxy {one['proxy_id']} does not use these users: {one['cause']}")
