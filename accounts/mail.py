"""Mails about accounts: sent at once, within a bounded time, and never with a 500.

What somebody waits for (a link) is told when it cannot be sent; what only informs (your password
was changed) is given up with a line in the log.
"""

from __future__ import annotations

import logging
import smtplib
from collections.abc import Sequence

from allauth.core import context
from allauth.core.exceptions import ImmediateHttpResponse
from django.core.mail import EmailMessage
from django.core.mail.backends.base import BaseEmailBackend
from django.shortcuts import render

logger = logging.getLogger(__name__)

RETRY_AFTER_S = 120


class NoMailServer(OSError):
    """EMAIL_HOST is not set."""


class NoMailServerBackend(BaseEmailBackend):
    """Where no mail server is named: nothing is sent, and whoever waits for a mail is told so."""

    def send_messages(self, email_messages: Sequence[EmailMessage]) -> int:
        raise NoMailServer("EMAIL_HOST is not set")


class MailNotSent(ImmediateHttpResponse):
    """The mail could not be sent; carries the page that says so."""


def send(message: EmailMessage) -> None:
    """Send now, or raise MailNotSent with a page for whoever waits for it (503)."""
    try:
        message.send()
    except (smtplib.SMTPException, OSError) as error:
        # Not its text: servers quote the address in it.
        logger.warning(
            "a mail could not be sent: %s", type(error).__name__, extra={"action": "mail_failed"}
        )
        response = render(context.request, "accounts/mail_not_sent.html", status=503)
        response["Retry-After"] = str(RETRY_AFTER_S)
        raise MailNotSent(response) from error
