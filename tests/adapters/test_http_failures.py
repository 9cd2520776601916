"""What a refusal means, and what the sentence says about it."""

from __future__ import annotations

import socket
import ssl
import time
from email.utils import formatdate

import httpx
import pytest
from lifecycle_adapters.failure_classes import classify
from lifecycle_adapters.http_failures import Site, in_stream, of_exception, of_response, retry_after
from lifecycle_adapters.secret import Secret

from lifecycle.vocabulary.failures import FailureCode

SITE = Site("http://host:1", model="m", key=Secret("sk-1234567", "MY_KEY"), secrets=(Secret("sk-1234567", "MY_KEY"),))


def error(message: str, **more: object) -> dict[str, object]:
    return {"error": {"message": message, **more}}


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (400, error("no such field"), FailureCode.INVALID_REQUEST),
        (400, error("request (3031 tokens) exceeds the available context size (1024 tokens), try increasing it",
                    type="exceed_context_size_error", code=400), FailureCode.CONTEXT_OVERFLOW),
        (400, error("This model's maximum context length is 8192 tokens."), FailureCode.CONTEXT_OVERFLOW),
        (400, error("max_tokens is too large: 99999."), FailureCode.INVALID_REQUEST),
        (413, "", FailureCode.CONTEXT_OVERFLOW),
        (401, "", FailureCode.AUTH),
        (403, error("no"), FailureCode.AUTH),
        (402, error("Insufficient Balance"), FailureCode.QUOTA),
        (404, error("no such model"), FailureCode.INVALID_REQUEST),
        (408, "", FailureCode.SERVER),
        (429, error("slow"), FailureCode.RATE_LIMIT),
        (429, error("pay", code="insufficient_quota"), FailureCode.QUOTA),
        (400, error("Too many tokens, please wait before trying again."), FailureCode.RATE_LIMIT),
        (500, error("boom", type="server_error"), FailureCode.SERVER),
        (503, "<html>", FailureCode.SERVER),
        (503, error("busy", type="overloaded_error"), FailureCode.OVERLOADED),
        (529, "", FailureCode.OVERLOADED),
        (None, error("boom", code=500), FailureCode.SERVER),
        (None, {"object": "error", "message": "maximum context length", "code": 400}, FailureCode.CONTEXT_OVERFLOW),
        (None, "plain words", FailureCode.SERVER),
        (None, {"error": [1, 2]}, FailureCode.SERVER),
    ],
)  # fmt: skip
def test_a_refusal_is_classified_by_status_codes_and_words(status: int | None, body: object, code: FailureCode) -> None:
    assert classify(status, body) is code


@pytest.mark.parametrize(
    "words",
    [
        "This model's maximum context length is 8192 tokens. However, you requested 9001 tokens.",
        "prompt is too long: 210345 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 195000 + 8192 > 200000",
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
        "Input tokens exceed the configured limit of 272000 tokens.",
        "The input token count (1196265) exceeds the maximum number of tokens allowed (1048576).",
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        "Please reduce the length of the messages or completion.",
        "prompt token count of 128500 exceeds the limit of 128000",
        "the request exceeds the available context size. try increasing the context size or enable context shift",
        "The number of tokens to keep from the initial prompt is greater than the context length.",
        "invalid params, context window exceeds limit (2013)",
        "Your request exceeded model token limit: 262144 (requested: 300000)",
        "prompt too long; exceeded max context length by 12 tokens",
        "Input is too long for requested model.",
        "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
        "The input (9001 tokens) is longer than the model's context length (8192 tokens).",
        "Range of input length should be [1, 129024]",
        "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens and 20 `max_new_tokens`",
        "too many tokens: the total number of tokens in the prompt cannot exceed 4081",
        "Prompt contains 9001 tokens, which is too large for the model's context.",
        "Requested token count exceeds the model's maximum context length of 8192 tokens.",
    ],
)
def test_servers_have_many_words_for_a_conversation_that_is_too_long(words: str) -> None:
    for status in (400, 422, 500, None):
        assert classify(status, error(words)) is FailureCode.CONTEXT_OVERFLOW


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (429, error("Request too large for m on tokens per min (TPM): Limit 30000, Requested 40000.",
                    code="rate_limit_exceeded", type="tokens"), FailureCode.RATE_LIMIT),
        (413, error("Request too large for model on tokens per minute (TPM)", code="rate_limit_exceeded"),
         FailureCode.RATE_LIMIT),
        (429, error("This request would exceed your rate limit of 40,000 input tokens per minute"),
         FailureCode.RATE_LIMIT),
        (429, error("prompt is too long"), FailureCode.RATE_LIMIT),
        (400, error("Your credit balance is too low to access the API.", type="invalid_request_error"),
         FailureCode.QUOTA),
        (429, error("You exceeded your current quota, please check your plan and billing details."), FailureCode.QUOTA),
        (429, error("You exceeded your current quota. Please retry in 31.3s.", status="RESOURCE_EXHAUSTED"),
         FailureCode.RATE_LIMIT),
        (429, error("suspended", type="exceeded_current_quota_error"), FailureCode.QUOTA),
        (403, error("billing", type="billing_error"), FailureCode.QUOTA),
        (403, error("no", type="permission_error"), FailureCode.AUTH),
        (400, error("max_tokens must be at most 8192, the maximum context length"), FailureCode.INVALID_REQUEST),
        (400, error("'temperature' does not support 0.2 with this model."), FailureCode.INVALID_REQUEST),
        (400, error("messages.3: `tool_use` ids were found without `tool_result` blocks"), FailureCode.INVALID_REQUEST),
        (400, error("context: unknown field"), FailureCode.INVALID_REQUEST),
        (400, error("tool context_window: description is too long"), FailureCode.INVALID_REQUEST),
        (401, error("context length exceeded"), FailureCode.AUTH),
        (None, error("busy", type="engine_overloaded_error"), FailureCode.OVERLOADED),
        (None, error("x", code="model_not_found"), FailureCode.INVALID_REQUEST),
    ],
)  # fmt: skip
def test_neither_a_limit_of_rate_nor_one_of_money_is_taken_for_another(
    status: int | None, body: object, code: FailureCode
) -> None:
    assert classify(status, body) is code


def test_a_server_may_say_that_the_same_request_is_not_to_be_sent_again() -> None:
    assert of_response(SITE, 500, {"x-should-retry": "false"}, "").retryable is False


def test_llama_cpp_says_that_the_context_is_too_small() -> None:
    body = {
        "error": {
            "code": 400,
            "message": "request (3031 tokens) exceeds the available context size (1024 tokens), try increasing it",
            "type": "exceed_context_size_error",
            "n_prompt_tokens": 3031,
            "n_ctx": 1024,
        }
    }
    failure = of_response(SITE, 400, {}, body)

    assert (failure.code, failure.status, failure.retryable) == ("CONTEXT_OVERFLOW", 400, False)
    assert "too long for the model at http://host:1" in failure.message
    assert "3031 tokens" in failure.message


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"retry-after": "86400"}, 86400.0),
        ({"retry-after": "Sat, 14 Mar 2026 12:00:07 GMT", "date": "Sat, 14 Mar 2026 12:00:00 GMT"}, 7.0),
        ({"retry-after": "Sat, 14 Mar 2026 11:59:00 GMT", "date": "Sat, 14 Mar 2026 12:00:00 GMT"}, 0.0),
        ({"retry-after": "Saturday, 14-Mar-26 12:00:07 GMT", "date": "Sat, 14 Mar 2026 12:00:00 GMT"}, 7.0),
        ({"retry-after": "Sat Mar 14 12:00:07 2026", "date": "Sat, 14 Mar 2026 12:00:00 GMT"}, 7.0),
        ({"retry-after": "99999999999"}, 99999999999.0),
        *(({"retry-after": odd}, None) for odd in ("soon", "-5", "1e3", "0x10", "NaN", "inf", "", "1.5", "99:99:99")),
        ({"retry-after-ms": "soon"}, None),
    ],
)
def test_every_form_of_retry_after_is_read_and_an_odd_one_is_none(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert retry_after(headers) == seconds


def test_without_a_date_of_the_server_our_own_clock_measures() -> None:
    wait = retry_after({"retry-after": formatdate(time.time() + 100, usegmt=True)})

    assert wait is not None
    assert 90 < wait <= 101


def test_a_failure_names_the_request_for_the_providers_support() -> None:
    assert of_response(SITE, 500, {"x-request-id": "req_7"}, "").request_id == "req_7"
    assert of_response(SITE, 500, {}, {"request_id": "req_8"}).request_id == "req_8"


def test_a_servers_words_are_bounded_to_one_line_and_rid_of_keys_and_control_characters() -> None:
    words = "your key\x1b[31m sk-1234567\nis wrong \ud800" + "x" * 100_000

    message = of_response(SITE, 401, {"x-request-id": "sk-1234567"}, error(words)).message

    assert "the key in MY_KEY was refused by http://host:1" in message
    assert "your key [31m [key] is wrong \ufffd" in message
    assert len(message) < 600
    assert message.isprintable()
    assert "sk-1234567" not in in_stream(SITE, error(words)).model_dump_json()


def test_a_missing_key_is_asked_for_by_the_name_of_its_variable() -> None:
    message = of_response(Site("http://h", key_variable="OPENAI_API_KEY"), 401, {}, "").message

    assert message == "http://h asks for a key and none was given; set OPENAI_API_KEY (HTTP 401)"


def connect_error(cause: BaseException) -> httpx.ConnectError:
    failed = httpx.ConnectError("All connection attempts failed")
    failed.__cause__ = OSError("all failed")
    failed.__cause__.__cause__ = BaseExceptionGroup("attempts", [cause])
    return failed


@pytest.mark.parametrize(
    ("cause", "words", "retryable"),
    [
        (ConnectionRefusedError(111, "refused"), "connection refused; is the server running?", True),
        (socket.gaierror(-2, "Name or service not known"), "the host name is not known", True),
        (ssl.SSLCertVerificationError(1, "CERTIFICATE_VERIFY_FAILED"), "its certificate was not accepted", False),
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER]"), "the TLS handshake failed", False),
        (OSError(113, "No route to host"), "No route to host", True),
    ],
)
def test_a_connection_that_does_not_come_about_says_why(cause: Exception, words: str, retryable: bool) -> None:
    failure = of_exception(SITE, connect_error(cause), "")

    assert failure.message.startswith("cannot connect to http://host:1: ")
    assert words in failure.message
    assert (failure.code, failure.retryable) == ("TRANSPORT", retryable)


@pytest.mark.parametrize(
    ("raised", "words"),
    [
        (httpx.ConnectTimeout(""), "connect_seconds"),
        (httpx.WriteTimeout(""), "write_seconds"),
        (httpx.PoolTimeout(""), "pool_seconds"),
        (httpx.ReadTimeout(""), "reading"),
    ],
)
def test_a_timeout_says_in_which_phase(raised: httpx.HTTPError, words: str) -> None:
    failure = of_exception(SITE, raised, "while reading")

    assert (failure.code, failure.retryable) == ("TIMEOUT", True)
    assert words in failure.message


def test_a_malformed_header_is_not_repeated_for_it_may_hold_the_key() -> None:
    failure = of_exception(SITE, httpx.LocalProtocolError("Illegal header value b'Bearer secret\\n'"), "")

    assert "secret" not in failure.message
    assert failure.retryable is False
