"""``slotferry context``: which cluster the other verbs talk to, when neither options nor the environment say it."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from slotferry import contexts
from slotferry.client import DEFAULT_URL
from slotferry.contexts import Context, ContextError, Contexts
from slotferry.operator import options
from slotferry.operator.addressing import TOKEN_VARIABLE, TOPOM_VARIABLE
from slotferry.output import answer, fail, note, say, table
from slots import bearer
from slots.forms import Form
from slots.topomtls import AUTHORITIES, CERTIFICATE, KEY, Files

app = typer.Typer(
    no_args_is_help=True, help="Keep addresses, tokens and certificates of clusters, and choose the one to talk to."
)

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The context's name.", autocompletion=options.names_of_contexts)
]


@app.command("list")
def list_contexts(form: options.Output = Form.TABLE) -> None:
    """Show all contexts. Tokens are never shown."""
    kept = _load()
    rows = [
        (
            "*" if name == kept.current else " ",
            name,
            context.topom,
            "kept" if context.token else "none",
            _certificates(context),
        )
        for name, context in sorted(kept.known.items())
    ]
    listed = [_described(kept, name) for name in sorted(kept.known)]

    def show() -> None:
        if rows:
            table(("", "context", "topom", "token", "certificates"), rows)
        else:
            say("no contexts yet; keep one: slotferry context set NAME --topom URL")
        for name, context in sorted(kept.known.items()):
            if wrong := _wrong(context.tls):
                note(f"context {name}: {wrong}")

    answer({"contexts": listed}, form, show)


@app.command("show")
def show_context(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="By default, the one in use.", autocompletion=options.names_of_contexts),
    ] = None,
    form: options.Output = Form.TABLE,
) -> None:
    """Show one context, or which cluster the other verbs talk to now. The token is never shown."""
    kept = _load()
    chosen = name or options.named_context() or kept.current
    if not name and not options.context_of_the_line() and os.environ.get(TOPOM_VARIABLE):
        say_where = f"{TOPOM_VARIABLE} says {os.environ[TOPOM_VARIABLE]}, and goes before the context"
    elif not chosen:
        say_where = f"no context is in use; the verbs ask {DEFAULT_URL}"
    else:
        say_where = ""
    if not chosen:
        answer(None, form, lambda: say(say_where))
        return
    try:
        context = kept.get(chosen)
    except ContextError as error:
        raise fail(str(error)) from None

    def show() -> None:
        say(f"context {chosen}: topom at {context.topom}, {'with' if context.token else 'without'} a token")
        if context.tls.authorities:
            say(f"authorities that may vouch for topom: {context.tls.authorities}")
        if context.tls.certificate:
            say(f"certificate shown to topom: {context.tls.certificate}, with the key {context.tls.key}")
        if wrong := _wrong(context.tls):
            note(wrong)
        if say_where:
            say(say_where)
        named = [variable for variable in (AUTHORITIES, CERTIFICATE, KEY) if os.environ.get(variable)]
        if named and not options.context_of_the_line():
            say(f"{', '.join(named)} of the environment {'go' if len(named) > 1 else 'goes'} before the context")

    answer(_described(kept, chosen), form, show)


@app.command("use")
def use(name: Name, form: options.Output = Form.TABLE) -> None:
    """Have the other verbs talk to this cluster from now on."""

    def choose(kept: Contexts) -> Contexts:
        kept.get(name)
        return Contexts(kept.known, name)

    kept = _change(choose)
    answer(_described(kept, name), form, lambda: say(f"context {name} is in use: {kept.known[name].topom}"))


@app.command("set")
def set_context(
    name: Name,
    topom: Annotated[
        str, typer.Option("--topom", metavar="URL,...", help="URL of topom's API, or of all topoms.")
    ] = DEFAULT_URL,
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            envvar=TOKEN_VARIABLE,
            metavar="TOKEN",
            show_default=False,
            help="topom's bearer token. Better leave it out and be asked for it: other users see options.",
        ),
    ] = None,
    tls_ca: options.TlsCa = "",
    tls_certificate: options.TlsCertificate = "",
    tls_key: options.TlsKey = "",
    form: options.Output = Form.TABLE,
) -> None:
    """Keep a cluster under a name. The token is asked for, or read from standard input. The first context is in use at
    once. Of certificates, the names of the files are kept: they can be renewed in place."""
    named = Files(tls_ca, tls_certificate, tls_key).over(options.tls_of_the_line())
    tls = Files(*(str(Path(file).absolute()) if file else "" for file in contexts.named_files(named).values()))
    try:
        contexts.require_tls(topom, tls)
    except ContextError as error:
        raise fail(str(error)) from None
    if wrong := _wrong(tls):
        raise fail(f"{wrong}; context {name} is not kept")
    secret = _read_token() if token is None else token
    try:
        bearer.check(secret)
    except bearer.TokenError as error:
        raise fail(f"{error}; context {name} is not kept") from None

    def keep(kept: Contexts) -> Contexts:
        made = contexts.with_context(kept, name, Context(topom, secret, tls=tls))
        return Contexts(made.known, made.current or name)

    kept = _change(keep)
    what = f"context {name} is kept" if secret else f"context {name} is kept without a token"
    in_use = " and is in use" if kept.current == name else f"; use it: slotferry context use {name}"
    answer(_described(kept, name), form, lambda: say(f"{what}{in_use}"))


@app.command("remove")
def remove(name: Name, form: options.Output = Form.TABLE) -> None:
    """Forget a cluster's address, token and certificates. Neither the cluster nor a file of them is changed."""
    kept = _change(lambda now: contexts.without(now, name))
    answer(
        {"contexts": [_described(kept, one) for one in sorted(kept.known)]},
        form,
        lambda: say(f"context {name} removed"),
    )


def _read_token() -> str:
    if sys.stdin.isatty():
        return str(typer.prompt("token", hide_input=True, default="", show_default=False))
    return sys.stdin.readline().strip()


def _described(kept: Contexts, name: str) -> dict[str, object]:
    context = kept.known[name]
    return {
        "name": name,
        "topom": context.topom,
        "token": bool(context.token),
        **contexts.named_files(context.tls),
        "tls_wrong": _wrong(context.tls),
        "in_use": name == kept.current,
    }


def _certificates(context: Context) -> str:
    named = (context.tls.authorities and "authorities", context.tls.certificate and "own")
    return ", ".join(word for word in named if word) or "none"


def _wrong(files: Files) -> str:
    """Why these files cannot be used; empty if they can."""
    if not files:
        return ""
    from slots.tls import TlsError

    try:
        files.context()
    except TlsError as error:
        return str(error)
    return ""


def _load() -> Contexts:
    try:
        return contexts.load()
    except ContextError as error:
        raise fail(str(error)) from None


def _change(make: options.Change) -> Contexts:
    try:
        return contexts.change(make)
    except ContextError as error:
        raise fail(str(error)) from None
