"""Errors as the API shows them: an HTTP status and the envelope `{"error": {...}}`."""

from __future__ import annotations

from typing import Any

from reference_server.seams import Answer
from reference_server.wire import sse_writer

_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


class ApiError(Exception):
    """A request that gets no answer. `code` is a word or None, never a number."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        fields: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.fields = fields

    @property
    def type(self) -> str:
        if self.status >= 500:
            return "server_error"
        return _TYPES.get(self.status, "invalid_request_error")

    def answer(self) -> Answer:
        body = sse_writer.dumps(envelope(self.message, self.type, self.param, self.code))
        return Answer(self.status, body.encode(), fields=self.fields)


def invalid(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """A mistake of the client's: 400."""
    return ApiError(400, message, param=param, code=code)


def envelope(
    message: str, kind: str, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """OpenAI's error document: all four keys, always."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}
