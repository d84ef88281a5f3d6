"""What a caller may be told: one tree of errors, one JSON shape.

`{"error": {"code": str, "message": str, "param": str | null, "retry_after_s": int | null}}`
"""

from __future__ import annotations

TOO_MANY_REQUESTS = 429


class ApiError(Exception):
    """The request could not be served."""

    code = "error"
    http_status = 500

    def __init__(
        self,
        message: str | None = None,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        self.message = message or (type(self).__doc__ or "").strip().splitlines()[0]
        self.code = code or type(self).code
        self.param = param
        self.retry_after_s = retry_after_s
        super().__init__(self.message)

    def as_dict(self) -> dict[str, dict[str, object]]:
        """The body of the answer, in the one shape."""
        return {
            "error": {
                "code": self.code,
                "message": self.message,
                "param": self.param,
                "retry_after_s": self.retry_after_s,
            }
        }


class InvalidRequest(ApiError):
    """The request is not valid."""

    code = "invalid_request"
    http_status = 400


class NotSignedIn(ApiError):
    """Sign in, or send a valid API token."""

    code = "not_signed_in"
    http_status = 401


class Forbidden(ApiError):
    """You may not do this."""

    code = "forbidden"
    http_status = 403


class PasswordChangeRequired(Forbidden):
    """You signed in with a one-time password. Choose your own password first."""

    code = "password_change_required"


class InsufficientScope(Forbidden):
    """This API token may not do this: it lacks a scope."""

    code = "insufficient_scope"


class SessionRequired(Forbidden):
    """Only a person who is signed in can do this, on the page; no API token can."""

    code = "session_required"


class NotFound(ApiError):
    """There is nothing here, or it is not yours."""

    code = "not_found"
    http_status = 404


class Conflict(ApiError):
    """The request does not fit the present state."""

    code = "conflict"
    http_status = 409


class TooManyTokens(Conflict):
    """You have as many API tokens as one person may have. Revoke one first."""

    code = "too_many_api_tokens"


class BodyTooLarge(ApiError):
    """The request body is too large."""

    code = "body_too_large"
    http_status = 413


class KeyReused(ApiError):
    """This Idempotency-Key was used with another request. Use a new key for a new request."""

    code = "idempotency_key_reused"
    http_status = 422


class RateLimited(ApiError):
    """Too many requests. Wait a moment and try again."""

    code = "rate_limited"
    http_status = TOO_MANY_REQUESTS
    model: str | None = None  # which one was asked for, where that is known


class Unavailable(ApiError):
    """A part of the service is away for a moment. Try again shortly; nothing was lost."""

    code = "unavailable"
    http_status = 503
