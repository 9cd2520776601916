"""What a refusal means, and what the sentence says about it."""

from __future__ import annotations

import socket
import ssl

import httpx
import pytest
from lifecycle_adapters.failure_classes import classify
from lifecycle_adapters.http_failures import Site, in_stream, of_exception, of_response
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
        (None, {"error": "overloaded"}, FailureCode.OVERLOADED),
        (None, {"errors": [{"message": "boom", "code": 429}]}, FailureCode.RATE_LIMIT),
        (503, error("The engine is currently overloaded, please try again later", type="server_error"),
         FailureCode.OVERLOADED),
        (429, [error("Resource has been exhausted", status="RESOURCE_EXHAUSTED", code=429)], FailureCode.RATE_LIMIT),
        (400, [error("API key not valid.", details=[{"reason": "API_KEY_INVALID"}])], FailureCode.AUTH),
        (400, {"code": "Client specified an invalid argument", "error": "Incorrect API key provided: ab."},
         FailureCode.AUTH),
        (400, {"__type": "com.amazon#ThrottlingException", "message": "slower"}, FailureCode.RATE_LIMIT),
        (400, error("Provider returned error", metadata={"raw": '{"error":{"message":"prompt is too long"}}'}),
         FailureCode.CONTEXT_OVERFLOW),
        (500, error('{"error": {"type": "overloaded_error", "message": "Overloaded"}}'), FailureCode.OVERLOADED),
        (None, error("blocked", code="cyber_policy"), FailureCode.INVALID_REQUEST),
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
        "The total number of tokens exceeds the model's context window",
        "Input validation error: `inputs` must have less than 4096 tokens. Given: 5000",
        "Prompt exceeds max length",
        "too many tokens: total tokens exceeded limit",
        "ContextWindowExceededError: This model's max context is 8192",
        "Input length 5000 exceeds the maximum length of 4096",
        "The conversation is too long, please shorten it",
        "Trying to keep the first 9001 tokens when context the overflows.",
        "输入内容过长，超过模型最大上下文长度",
        "input is larger than the max context size. skipped",
        "the input exceeds the maximum number of tokens",
        "The total number of tokens exceeds the limit of 8192",
        "token limit exceeded for this model",
        "the prompt is too large for the context",
        "Conversation too long",
        "Too many tokens: 12000 > 8192",
        "'max_tokens' or 'max_completion_tokens' is too large: 4096. This model's maximum context length is 4096 tokens"
        " and your request has 3000 input tokens (4096 > 4096 - 3000).",
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
        (400, error("Image exceeds the maximum size of 5 MB"), FailureCode.INVALID_REQUEST),
        (429, {"error": "you've reached your hourly usage limit, please upgrade"}, FailureCode.RATE_LIMIT),
        (429, error("Rate limit reached on tokens per day. Upgrade at https://console/settings/billing",
                    code="rate_limit_exceeded"), FailureCode.RATE_LIMIT),
        (429, {"error": {"code": "1302", "message": "您的账户已达到速率限制"}}, FailureCode.RATE_LIMIT),
        (None, error("x", code="model_not_found"), FailureCode.INVALID_REQUEST),
        (498, error("Flex tier capacity exceeded"), FailureCode.OVERLOADED),
    ],
)  # fmt: skip
def test_neither_a_limit_of_rate_nor_one_of_money_is_taken_for_another(
    status: int | None, body: object, code: FailureCode
) -> None:
    assert classify(status, body) is code


@pytest.mark.parametrize(
    "words",
    [
        "Rate limit reached for TPM: prompt tokens exceed the tokens per minute limit",
        "Input tokens per minute limit exceeded",
        "quota exceeded: input tokens exceed your per-day limit",
        "request throttled: prompt tokens exceeded",
        "Your prompt tokens usage exceeds the rate limit",
        "Token rate limit exceeded, prompt tokens 5000 exceed",
        "Exceeded input limit: rate limit of 1000 TPM",
        "input token count exceeds the quota: GenerateContentInputTokensPerModelPerMinute",
        "Number of request tokens has exceeded your daily limit",
        "We are processing too many requests",
    ],
)
def test_servers_have_many_words_for_too_many_tokens_in_a_time(words: str) -> None:
    for status in (400, 429, 500, 503, None):
        assert classify(status, error(words)) is FailureCode.RATE_LIMIT


@pytest.mark.parametrize(
    "words",
    [
        "You have insufficient funds",
        "Your account balance is not enough",
        "Your prepayment credits are depleted",
        "This API key has reached its spending cap",
        "Usage limit has been reached",
        "You have no remaining quota",
        "not enough credits",
        "Account suspended due to unpaid invoice",
        "Payment required",
        "Your trial has expired",
    ],
)
def test_servers_have_many_words_for_money_that_is_spent(words: str) -> None:
    for status in (400, 403, 429, 500, None):
        assert classify(status, error(words)) is FailureCode.QUOTA


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, error("You have reached your specified API usage limits. You will regain access on 2026-04-01.")),
        (402, ""),
        (402, error("This request requires more credits, or fewer max_tokens.", code=402)),
        (403, error("Key limit exceeded (total limit).", code=403)),
        (403, {"code": 30001, "message": "Sorry, your account balance is insufficient"}),
        (403, {"code": "Arrearage", "message": "Access denied, please make sure your account is in good standing."}),
        (403, {"code": "AllocationQuota.FreeTierOnly", "message": "The free tier of the model has been exhausted."}),
        (403, error("The request failed because your account has an overdue balance.", code="AccountOverdueError")),
        (403, {"code": "no permission", "error": "Your team has used all available credits."}),
        (412, error("Account is suspended, possibly due to reaching the monthly spending limit")),
        (429, error("Your account is suspended, please check your plan and billing details")),
        (429, {"error": {"code": "1113", "message": "您的账户已欠费，请充值后重试。"}}),
    ],
)
def test_providers_have_many_words_for_an_account_that_is_used_up(status: int, body: object) -> None:
    failure = of_response(SITE, status, {}, body)

    assert (failure.code, failure.retryable) == ("QUOTA", False)


def test_the_innermost_of_nested_errors_is_told() -> None:
    raw = '{"error": {"message": "slow down, please", "type": "rate_limit_error"}}'
    failure = in_stream(SITE, error("Provider returned error", code=429, metadata={"raw": raw}))

    assert (failure.code, failure.status) == ("RATE_LIMIT", 429)
    assert "slow down, please" in failure.message


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
