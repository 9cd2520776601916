"""What an HTTP provider's refusals and breakdowns mean: status, headers, body or exception in, a `Failure` out.

One place for all wires. Each message is one sentence for people: what happened, at which host, what to do. No I/O.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import cast

import httpx

from lifecycle.vocabulary.failures import Failure, FailureCode
from lifecycle.vocabulary.values import mend

from .delays import asked_in, delay
from .failure_classes import classify, read
from .http_clients import proxies
from .secret import Secret, strike_out

_LONGEST_QUOTE = 400
"""How much of a server's own words a message repeats."""

_RETRYABLE = frozenset({
    FailureCode.RATE_LIMIT,
    FailureCode.OVERLOADED,
    FailureCode.SERVER,
    FailureCode.TIMEOUT,
    FailureCode.TRANSPORT,
    FailureCode.EMPTY_RESPONSE,
})  # fmt: skip

_REQUEST_ID_HEADERS = ("x-request-id", "request-id", "x-amzn-requestid", "cf-ray")


@dataclass(frozen=True, slots=True)
class Site:
    """Whom the messages speak of: the server, the model asked for, where the key came from, what is struck out."""

    name: str
    """Scheme, host and port."""
    model: str | None = None
    not_found: str = ""
    """Advice for who asked for something that is not there."""
    key: Secret | None = None
    key_variable: str | None = None
    """The environment variable that would hold the key."""
    secrets: tuple[Secret, ...] = field(default=(), repr=False)

    def quote(self, text: str) -> str:
        """A server's words, fit for a message: one line of bounded length, without secrets or control characters."""
        clean = mend(strike_out(text, self.secrets)[: 64 * _LONGEST_QUOTE])
        clean = " ".join("".join(c if c.isprintable() else " " for c in clean).split())
        return clean if len(clean) <= _LONGEST_QUOTE else clean[: _LONGEST_QUOTE - 3] + "..."


def of_response(site: Site, status: int, headers: Mapping[str, str], body: object) -> Failure:
    """The failure that an error response reports. `body` is decoded JSON, or text."""
    said = read(body)
    code = classify(status, body)
    quoted = site.quote(said.message)
    words = f": {quoted}" if quoted else ""
    request_id = next((headers[name] for name in _REQUEST_ID_HEADERS if name in headers), said.request_id)
    return Failure(
        message=_sentence(site, status, code, said.names, words),
        code=code.value,
        status=status,
        request_id=None if request_id is None else site.quote(request_id),
        retryable=code in _RETRYABLE and headers.get("x-should-retry") != "false",
        retry_after=delay(headers, body),
    )


def in_stream(site: Site, body: object) -> Failure:
    """The failure that a server reports inside a stream that began well."""
    said = read(body)
    code = classify(None, body)
    quoted = site.quote(said.message)
    return Failure(
        message=f"{site.name} broke the answer off" + (f": {quoted}" if quoted else " with an error"),
        code=code.value,
        status=said.status,
        retryable=code in _RETRYABLE,
        retry_after=asked_in(body),
    )


def of_redirect(site: Site, status: int, location: str) -> Failure:
    """A redirect is refused: following it would hand the conversation and the key to somebody else."""
    target = site.quote(location)
    return Failure(
        message=f"{site.name} redirects to {target or 'nowhere'} (HTTP {status}), which was not followed; "
        "if you trust it, make it the base URL",
        code=FailureCode.PROTOCOL.value,
        status=status,
        retryable=False,
    )


def of_exception(site: Site, error: Exception, phase: str) -> Failure:
    """The failure that an httpx exception stands for. `phase` completes "timed out ..."."""
    if isinstance(error, httpx.TimeoutException):
        return timed_out(site, _TIMEOUT_PHASES.get(type(error), phase))
    if isinstance(error, httpx.ProxyError) and str(error).startswith("407"):
        return of_response(site, 407, {}, None)
    if isinstance(error, httpx.ProxyError):
        return transport(f"the proxy on the way to {site.name} refused: {site.quote(str(error))}")
    if isinstance(error, httpx.ConnectError):
        return _no_connection(site, error)
    if isinstance(error, (httpx.LocalProtocolError, httpx.UnsupportedProtocol)):
        # Its text may hold a header, so also a key: it is not repeated.
        return Failure(
            message=f"the request to {site.name} cannot be sent: a header or the base URL is malformed",
            code=FailureCode.INVALID_REQUEST.value,
            retryable=False,
        )
    return transport(f"the connection to {site.name} broke before the answer was finished; try again")


def timed_out(site: Site, phase: str) -> Failure:
    """`phase` completes "timed out ..." and says what to raise."""
    return Failure(message=f"{site.name} timed out {phase}", code=FailureCode.TIMEOUT.value, retryable=True)


def transport(message: str, *, retryable: bool = True) -> Failure:
    return Failure(message=message, code=FailureCode.TRANSPORT.value, retryable=retryable)


def protocol(message: str, *, status: int | None = None, retryable: bool) -> Failure:
    return Failure(message=message, code=FailureCode.PROTOCOL.value, status=status, retryable=retryable)


def hung_up(site: Site) -> Failure:
    plain = ", or does it speak TLS, and the base URL is https://?" if site.name.startswith("http://") else ""
    return transport(f"{site.name} closed the connection without any answer; try again{plain}")


def no_http(site: Site) -> Failure:
    return protocol(
        f"{site.name} answered with something that is no HTTP; are the port, and http or https, of the base URL right?",
        retryable=False,
    )


def no_answer(site: Site, form: str = "document") -> Failure:
    return protocol(
        f"{site.name} answered with a {form} that is no answer of this wire; `lifecycle providers --probe URL` says "
        "which it speaks",
        retryable=False,
    )


def unfinished_call(site: Site) -> Failure:
    return protocol(f"{site.name} ended the answer before the arguments of a call; try again", retryable=True)


def empty_response(site: Site) -> Failure:
    return Failure(
        message=f"{site.name} finished the answer without any content; try again, or ask in other words",
        code=FailureCode.EMPTY_RESPONSE.value,
        retryable=True,
    )


def _sentence(site: Site, status: int, code: FailureCode, names: frozenset[str], words: str) -> str:
    match code:
        case FailureCode.AUTH if status == 407:
            return f"the proxy on the way to {site.name} wants a name and a password in its URL (HTTP 407){words}"
        case FailureCode.AUTH:
            if site.key is not None:
                return f"the key in {site.key.origin} was refused by {site.name} (HTTP {status}){words}"
            where = f"set {site.key_variable}" if site.key_variable else "pass api_key"
            return f"{site.name} asks for a key and none was given; {where} (HTTP {status}){words}"
        case FailureCode.INVALID_REQUEST if status == 404 or "model_not_found" in names:
            asked = f"the model {site.model!r}" if site.model else "what was asked for"
            return f"{site.name} does not serve {asked} (HTTP {status}; {site.not_found}){words}"
        case FailureCode.INVALID_REQUEST:
            return f"{site.name} refused the request (HTTP {status}){words}"
        case FailureCode.CONTEXT_OVERFLOW:
            return f"the conversation is too long for the model at {site.name} (HTTP {status}){words}"
        case FailureCode.RATE_LIMIT:
            return f"{site.name} is asked too often (HTTP {status}){words}"
        case FailureCode.QUOTA:
            return f"the account at {site.name} is used up (HTTP {status}){words}"
        case FailureCode.OVERLOADED:
            return f"{site.name} is overloaded (HTTP {status}){words}"
        case _:
            return f"{site.name} failed (HTTP {status}){words}"


_TIMEOUT_PHASES: dict[type[Exception], str] = {
    httpx.ConnectTimeout: "while connecting; is the server running, and connect_seconds long enough?",
    httpx.WriteTimeout: "while the request was being sent; raise write_seconds if it is large",
    httpx.PoolTimeout: "waiting for a free connection; raise pool_seconds or the limits of the client",
}


def _no_connection(site: Site, error: Exception) -> Failure:
    cannot = f"cannot connect to {site.name}"
    causes = tuple(_causes(error))
    text = " ".join(map(str, causes))  # over a proxy, only the words of a TLS error are left
    if "CERTIFICATE_VERIFY_FAILED" in text:
        why = next((str(message) for cause in causes if (message := getattr(cause, "verify_message", ""))), "")
        quoted = f" ({site.quote(why)})" if why else ""
        return transport(
            f"{cannot}: its certificate was not accepted{quoted}; for a private authority set SSL_CERT_FILE",
            retryable=False,
        )
    if "[SSL" in text or any(isinstance(cause, ssl.SSLError) for cause in causes):
        return transport(
            f"{cannot}: the TLS handshake failed; does it speak TLS, or is the base URL http://?", retryable=False
        )
    for cause in causes:
        if isinstance(cause, socket.gaierror):
            return transport(f"{cannot}: the host name is not known; check the base URL and the network")
        if isinstance(cause, ConnectionRefusedError):
            return transport(f"{cannot}: connection refused; is the server running{_or_proxy()}?")
    reason = next((cause.strerror for cause in causes if isinstance(cause, OSError) and cause.strerror), None)
    return transport(f"{cannot}: {site.quote(reason or 'no route to it')}; is the server running{_or_proxy()}?")


def _or_proxy() -> str:
    """Where a proxy is in use the error does not say which of the two it was."""
    named = proxies()
    return f", and the proxy of {named}" if named else ""


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The exception, what caused it, and the members of groups among them."""
    pending, seen = [error], set[int]()
    while pending:
        current = pending.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        if isinstance(current, BaseExceptionGroup):
            pending += cast("BaseExceptionGroup[BaseException]", current).exceptions
        pending += [cause for cause in (current.__cause__, current.__context__) if cause is not None]
