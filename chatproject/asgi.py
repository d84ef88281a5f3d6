"""The ASGI application: Django for pages and API, Channels for streams, a lifespan for drains."""

from __future__ import annotations

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "chatproject.settings")

import django

django.setup(set_prefix=False)

# Only now: these load models.
from channels.routing import ProtocolTypeRouter, URLRouter
from django.conf import settings
from django.urls import re_path

from chatproject.body_limit import BodyLimit
from chatproject.handler import GatewayHandler, Liveness, refuse_websocket
from chatproject.lifespan import lifespan
from chatproject.static_files import with_static_files
from generation.gateway.resume import resume
from generation.gateway.socket import SocketConsumer

# A resume looks at no body, so it needs no limit: what comes is dropped as it comes.
django_app = BodyLimit(GatewayHandler(), settings.MAX_BODY_BYTES)
routes = [
    re_path(r"^v1/runs/(?P<run>[^/]+)/stream$", resume),  # type: ignore[arg-type]  # an ASGI application, not a view
    re_path(r"", django_app),  # type: ignore[arg-type]  # an ASGI application, not a view
]

sockets = [
    re_path(r"^v1/ws$", SocketConsumer.as_asgi()),
    re_path(r"", refuse_websocket),  # type: ignore[arg-type]  # an ASGI application, not a view
]

# Files are served before Django, and so without one of its few threads: a reader who takes a file
# slowly holds up nobody.
http = Liveness(with_static_files(URLRouter(routes)))

application = ProtocolTypeRouter(
    {
        "http": http,
        "websocket": URLRouter(sockets),
        "lifespan": lifespan,
    }
)
