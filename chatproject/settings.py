"""Settings, all from the environment; docs/operations.md has a table of every variable.

Secrets may come from files: `SECRET_KEY_FILE=/run/secrets/key` stands for `SECRET_KEY`.
A wrong value stops the start with a message (see also `chatproject/checks.py`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import environ
from csp.constants import NONCE, NONE, SELF
from django.templatetags.static import static

from accounts.oidc import InvalidProviders, parse_providers
from chatproject.logs import logging_config

BASE_DIR = Path(__file__).resolve().parent.parent
env = environ.FileAwareEnv()

DEBUG: bool = env.bool("DEBUG", default=False)
SECRET_KEY: str = env.str("SECRET_KEY")
ALLOWED_HOSTS: list[str] = env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])
CSRF_TRUSTED_ORIGINS: list[str] = env.list("CSRF_TRUSTED_ORIGINS", default=[])
PRODUCT_NAME: str = env.str("PRODUCT_NAME", default="Hearth")
SIGN_UP_OPEN: bool = env.bool("SIGN_UP_OPEN", default=True)

INSTALLED_APPS = [
    "daphne",  # first, so that `runserver` speaks ASGI
    "unfold.apps.BasicAppConfig",  # before the admin, whose templates it replaces
    "accounts.admin_config.AdminConfig",  # django.contrib.admin with a site of ours
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "servestatic.runserver_nostatic",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "channels",
    "csp",
    # Before accounts, whose admin takes theirs away.
    "allauth",
    "allauth.account",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
    "allauth.mfa",
    "allauth.usersessions",
    "accounts",
    "accounts.keystore",
    "conversations",
    "quotas",
    "safety",
    "generation",
    "chatproject",
]

MIDDLEWARE = [
    "chatproject.health.Readiness",  # first: probes name no host of ours
    "chatproject.metrics.Metrics",  # nor do scrapers
    "django_prometheus.middleware.PrometheusBeforeMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "chatproject.api_headers.NoStore",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",  # the cookie, else what the browser asks for
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "accounts.middleware.PreferredLanguage",  # after LocaleMiddleware too
    "allauth.account.middleware.AccountMiddleware",
    "accounts.middleware.OwnPasswordFirst",
    "accounts.middleware.KeptNowhere",
    "accounts.middleware.KeysAwayPage",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "chatproject.languages.EnglishApi",  # after whatever chooses a language
    "django_prometheus.middleware.PrometheusAfterMiddleware",  # last
]

ROOT_URLCONF = "chatproject.urls"
ASGI_APPLICATION = "chatproject.asgi.application"
APPEND_SLASH = False

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "csp.context_processors.nonce",
                "chatproject.pages.product",
                "accounts.context.look",
            ],
        },
    },
]

# --- logs -----------------------------------------------------------------------------------------

LOGGING = logging_config(env.str("LOG_LEVEL", default="INFO"))

# --- metrics --------------------------------------------------------------------------------------

# Who sends it as a bearer token may read /metrics; without one only staff may, signed in.
METRICS_TOKEN: str = env.str("METRICS_TOKEN", default="")
# Seconds. Each bucket is a series for each view and method.
PROMETHEUS_LATENCY_BUCKETS = (
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    10.0,
    float("inf"),
)

# --- data -----------------------------------------------------------------------------------------

DATABASE_POOL_SIZE: int = env.int("DATABASE_POOL_SIZE", default=12)
DATABASES: dict[str, dict[str, Any]] = {"default": env.db_url("DATABASE_URL")}
DATABASES["default"]["OPTIONS"] = {
    **DATABASES["default"].get("OPTIONS", {}),
    # Django's native pool: under ASGI a CONN_MAX_AGE leaves hundreds of idle connections. Its own
    # attempts to reconnect grow rare during an outage; given up early, the next request tries.
    "pool": {
        "min_size": 1,
        "max_size": DATABASE_POOL_SIZE,
        "timeout": 5,
        "reconnect_timeout": 5,
    },
    # A server that vanished answers nothing: without these a call would wait for a quarter of an
    # hour, and a finish with it.
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}
# Looks at connections as the pool hands them out: a restart of PostgreSQL would else cost an error
# for each.
DATABASES["default"]["ENGINE"] = "chatproject.postgresql"

# The users' data keys, wrapped by the first of MASTER_KEYS (id:base64,id:base64): a database of
# their own, so that no copy of the content holds what opens it. A look-up gives its connection back
# at once, so a few are enough. What is missing or wrong here: accounts/checks.py.
MASTER_KEYS: str = env.str("MASTER_KEYS", default="")
KEYS_DATABASE_URL: str = env.str("KEYS_DATABASE_URL", default="")
if KEYS_DATABASE_URL:
    DATABASES["keys"] = env.db_url("KEYS_DATABASE_URL")
    DATABASES["keys"]["OPTIONS"] = {
        **DATABASES["keys"].get("OPTIONS", {}),
        "pool": {"min_size": 0, "max_size": 4, "timeout": 5, "reconnect_timeout": 5},
    }
    DATABASES["keys"]["ENGINE"] = "chatproject.postgresql"
DATABASE_ROUTERS = ["accounts.routers.KeysRouter"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

REDIS_URL: str = env.str("REDIS_URL")
CACHE_URL: str = env.str("CACHE_URL", default=REDIS_URL)
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": CACHE_URL,
        "KEY_PREFIX": "cache",
        "OPTIONS": {"socket_timeout": 5, "socket_connect_timeout": 2},
    }
}
CHANNEL_LAYERS = {
    # Account-wide hints only: at most once, they make a client look again (accounts/hints.py).
    "default": {
        "BACKEND": "generation.token_log.layer.TokenChannelLayer",
        "CONFIG": {"hosts": [REDIS_URL], "prefix": "hints"},
    },
    # Token logs: pushed frames, repaired from the log.
    "tokens": {
        "BACKEND": "generation.token_log.layer.TokenChannelLayer",
        "CONFIG": {"hosts": [REDIS_URL], "prefix": "tokens"},
    },
}

# --- accounts -------------------------------------------------------------------------------------

AUTH_USER_MODEL = "accounts.User"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {
        "NAME": "django.contrib.auth.password_validation.MinimumLengthValidator",
        "OPTIONS": {"min_length": 10},
    },
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
LOGIN_URL = "/accounts/sign-in/"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "/accounts/sign-in/"
CSRF_FAILURE_VIEW = "chatproject.pages.csrf_failure"
SESSION_ENGINE = "accounts.sessions"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = env.bool("SECURE_COOKIES", default=False)
SECURE_PROXY_SSL_HEADER = (
    ("HTTP_X_FORWARDED_PROTO", "https") if env.bool("BEHIND_TLS_PROXY", default=False) else None
)
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
RATELIMIT_VIEW = "accounts.views.rate_limited"
# Where people reach the service; links in mails begin with it (accounts/site.py).
SITE_URL: str = env.str("SITE_URL", default="").rstrip("/")
# Identity providers, with their secrets; what is wrong with them is told by a system check.
OIDC_PROVIDERS: str = env.str("OIDC_PROVIDERS", default="")
try:
    _oidc_apps = parse_providers(OIDC_PROVIDERS)
except InvalidProviders:
    _oidc_apps = []

# django-allauth. Its limits are off: accounts.rate_limits counts.
ACCOUNT_ADAPTER = "accounts.adapters.AccountAdapter"
ACCOUNT_USER_MODEL_USERNAME_FIELD = None
ACCOUNT_LOGIN_METHODS = {"email"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "password1*", "password2*"]
ACCOUNT_EMAIL_VERIFICATION = "mandatory"
ACCOUNT_EMAIL_CONFIRMATION_EXPIRE_DAYS = 3
ACCOUNT_LOGIN_ON_EMAIL_CONFIRMATION = True  # only in the browser that signed up, and soon
ACCOUNT_CHANGE_EMAIL = True  # one address; a new one replaces it once it is confirmed
ACCOUNT_PREVENT_ENUMERATION = True
ACCOUNT_REAUTHENTICATION_REQUIRED = True
ACCOUNT_EMAIL_NOTIFICATIONS = True
ACCOUNT_EMAIL_SUBJECT_PREFIX = f"[{PRODUCT_NAME}] "
ACCOUNT_RATE_LIMITS = False
ACCOUNT_FORMS = {
    "add_email": "accounts.forms.ChangeAddressForm",
    "confirm_reauthentication_code": "accounts.forms.ConfirmReauthenticationCodeForm",
    "reauthenticate": "accounts.forms.ReauthenticateForm",
    "reset_password": "accounts.forms.ResetPasswordForm",
    "reset_password_from_key": "accounts.forms.NewPasswordForm",
    "set_password": "accounts.forms.SetPasswordForm",
    "user_token": "accounts.forms.ResetLinkForm",
}
MFA_ADAPTER = "accounts.adapters.MfaAdapter"
MFA_SUPPORTED_TYPES = ["totp", "webauthn", "recovery_codes"]
MFA_PASSKEY_LOGIN_ENABLED = True
MFA_TOTP_TOLERANCE = 1  # clocks differ; 30 s before and after
MFA_RATE_LIMITS = False
MFA_FORMS = {
    "activate_totp": "accounts.mfa_forms.ActivateTotpForm",
    "add_webauthn": "accounts.mfa_forms.AddPasskeyForm",
    "authenticate": "accounts.mfa_forms.SecondFactorForm",
    "authenticate_webauthn": "accounts.mfa_forms.SecondPasskeyForm",
    "edit_webauthn": "accounts.mfa_forms.RenamePasskeyForm",
    "login_webauthn": "accounts.mfa_forms.PasskeySignInForm",
    "reauthenticate": "accounts.mfa_forms.ReauthenticateByCodeForm",
    "reauthenticate_webauthn": "accounts.mfa_forms.ReauthenticateByPasskeyForm",
}
SOCIALACCOUNT_ADAPTER = "accounts.adapters.SocialAdapter"
SOCIALACCOUNT_EMAIL_AUTHENTICATION_AUTO_CONNECT = True  # where a provider has link_by_email
SOCIALACCOUNT_REQUESTS_TIMEOUT = 5
SOCIALACCOUNT_FORMS = {"signup": "accounts.forms.ProviderSignUpForm"}
SOCIALACCOUNT_PROVIDERS = {
    "openid_connect": {
        "provider_class": "accounts.oidc_provider.Provider",
        "OAUTH_PKCE_ENABLED": True,
        "APPS": _oidc_apps,
    }
}

# Mails: by EMAIL_HOST; on the console under `make run`; else nowhere, and people are told.
EMAIL_HOST: str = env.str("EMAIL_HOST", default="")
EMAIL_PORT: int = env.int("EMAIL_PORT", default=587)
EMAIL_HOST_USER: str = env.str("EMAIL_HOST_USER", default="")
EMAIL_HOST_PASSWORD: str = env.str("EMAIL_HOST_PASSWORD", default="")
EMAIL_USE_SSL: bool = env.bool("EMAIL_USE_SSL", default=False)
EMAIL_USE_TLS: bool = env.bool("EMAIL_USE_TLS", default=EMAIL_PORT == 587 and not EMAIL_USE_SSL)
# For each step with the mail server, of which a mail has about eight.
EMAIL_TIMEOUT: float = env.float("EMAIL_TIMEOUT_S", default=5.0)
DEFAULT_FROM_EMAIL: str = env.str("DEFAULT_FROM_EMAIL", default="hearth@localhost")
if EMAIL_HOST:
    EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
elif env.bool("EMAIL_ON_CONSOLE", default=DEBUG):
    EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"
else:
    EMAIL_BACKEND = "accounts.mail.NoMailServerBackend"

# How many proxies of ours stand in front: so many addresses of X-Forwarded-For are believed.
TRUSTED_PROXY_COUNT: int = env.int("TRUSTED_PROXY_COUNT", default=0)

# How long a rotated API token may go on working beside its successor, at most.
API_TOKEN_OVERLAP_MAX_S: int = env.int("API_TOKEN_OVERLAP_MAX_S", default=24 * 3600)

# --- pages ----------------------------------------------------------------------------------------

LANGUAGE_CODE = "en"
# Each has its catalogues in locale/ and static/js/catalogues/; docs/translating.md adds one.
LANGUAGES = [("en", "English"), ("hi", "हिन्दी"), ("ar", "العربية")]
LOCALE_PATHS = [BASE_DIR / "locale"]
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = True
STATIC_URL = "/static/"
STATIC_ROOT = Path(env.str("STATIC_ROOT", default=str(BASE_DIR / "var" / "static")))
STATICFILES_DIRS = [BASE_DIR / "static"]
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.FileSystemFinder",
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    "chatproject.esm.NodeModulesFinder",
    "chatproject.esm.SwaggerUIFinder",
]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"
        if DEBUG
        else "servestatic.storage.CompressedManifestStaticFilesStorage"
    },
}

# Nothing inline without the response's nonce, nothing from elsewhere. The chat page adds Trusted
# Types (chatproject/pages.py); Django's admin builds HTML in scripts and could not live with them.
# The admin has this policy too, no looser: see docs/decisions.md.
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF, NONCE],
        "style-src": [SELF],
        "img-src": [SELF],
        "font-src": [SELF],
        "connect-src": [SELF],
        "manifest-src": [SELF],
        "worker-src": [SELF],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
        "base-uri": [NONE],
    }
}

# --- the admin ------------------------------------------------------------------------------------

UNFOLD = {
    "SITE_TITLE": PRODUCT_NAME,
    "SITE_HEADER": PRODUCT_NAME,
    "SITE_SUBHEADER": "Administration",
    "SITE_SYMBOL": "local_fire_department",
    "SITE_FAVICONS": [
        {"rel": "icon", "type": "image/svg+xml", "href": lambda request: static("icons/mark.svg")}
    ],
    # Its inline <style> of colours is not rendered: they are in this file.
    "STYLES": [lambda request: static("css/admin.css")],
    "SHOW_VIEW_ON_SITE": False,
    "SIDEBAR": {"show_search": False, "navigation": "chatproject.admin_navigation.navigation"},
}

# --- the API --------------------------------------------------------------------------------------

MAX_BODY_BYTES: int = env.int("MAX_BODY_BYTES", default=1024 * 1024)
DATA_UPLOAD_MAX_MEMORY_SIZE = MAX_BODY_BYTES
# The rest of the pool is for accounts.aio: resumes and lookups must not wait for requests.
WEB_THREADS: int = env.int("WEB_THREADS", default=(DATABASE_POOL_SIZE + 1) // 2)
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "accounts.authentication.ApiTokenAuthentication",
        "accounts.authentication.CookieAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": [
        "rest_framework.permissions.IsAuthenticated",
        "accounts.permissions.TokenScope",
    ],
    "DEFAULT_PARSER_CLASSES": ["accounts.parsers.BoundedJSONParser"],
    "DEFAULT_RENDERER_CLASSES": ["accounts.renderers.FastJSONRenderer"],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "accounts.parsers.JsonOrEventStream",
    "EXCEPTION_HANDLER": "accounts.api_errors.exception_handler",
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_METADATA_CLASS": None,  # OPTIONS is a method like others: 405 with Allow
    "UNAUTHENTICATED_USER": None,
    "COMPACT_JSON": True,
}
SPECTACULAR_SETTINGS = {
    "TITLE": f"{PRODUCT_NAME} API",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "SCHEMA_PATH_PREFIX": "/v1/",
    "COMPONENT_SPLIT_PATCH": False,
    "ENFORCE_NON_BLANK_FIELDS": True,
    "SERVE_INCLUDE_SCHEMA": True,
    "PREPROCESSING_HOOKS": ["chatproject.openapi.add_streams"],
    "POSTPROCESSING_HOOKS": ["chatproject.openapi.finish_schema"],
}

# --- generation -----------------------------------------------------------------------------------

# What serves which model: {"profile name": {"kind": "llamacpp", "url": …, …}}. Rows name a profile;
# addresses and keys never enter the database.
ENGINE_PROFILES: str = env.str("ENGINE_PROFILES", default="{}")
GPU_POOL: str = env.str("GPU_POOL", default="")
GPU_REPLICA: str = env.str("GPU_REPLICA", default="")
# Runs beyond a replica's slots that only paid plans may begin: a worker has so many of its threads
# for them, and its engine must be able to serve all.
GPU_PAID_BURST: int = env.int("GPU_PAID_BURST", default=0)
# The region of people who have none of their own; empty: that of a model's first pool.
HOME_REGION: str = env.str("HOME_REGION", default="")
# "fair"; "fifo" for bench/fairness alone, which shows what a plain queue does.
SCHEDULER_ORDER: str = env.str("SCHEDULER_ORDER", default="fair")
# Of the models' prices and the runs' costs. A name that stands beside amounts; nothing converts.
CURRENCY: str = env.str("CURRENCY", default="USD")
SYSTEM_PROMPT: str = env.str(
    "SYSTEM_PROMPT",
    default="You are a helpful assistant. Answer clearly, in the language of the question.",
)
MAX_MESSAGE_BYTES: int = env.int("MAX_MESSAGE_BYTES", default=128 * 1024)
MAX_QUEUED_PER_POOL: int = env.int("MAX_QUEUED_PER_POOL", default=2_000)
MAX_LIVE_RUNS_PER_USER: int = env.int("MAX_LIVE_RUNS_PER_USER", default=100)

# What one user may keep open in one web process.
MAX_STREAMS_PER_USER: int = env.int("MAX_STREAMS_PER_USER", default=100)
MAX_SOCKETS_PER_USER: int = env.int("MAX_SOCKETS_PER_USER", default=20)

# How long a deleted conversation can be restored; then its text is destroyed.
PURGE_AFTER_DAYS: float = env.float("PURGE_AFTER_DAYS", default=30)

# How long a worker that was told to end lets its running answers finish before it hands them over.
WORKER_GRACE_S: float = env.float("WORKER_GRACE_S", default=25.0)
# The same for a replica that is moved to another pool: nobody waits for its process.
MOVE_GRACE_S: float = env.float("MOVE_GRACE_S", default=120.0)
# A stream that says nothing for so long sends a comment: proxies cut idle connections, nginx after
# 60 s by default, some after 30.
STREAM_HEARTBEAT_S: float = env.float("STREAM_HEARTBEAT_S", default=10.0)
# A free run that nobody has watched for so long ends where others wait for its slot.
UNWATCHED_S: float = env.float("UNWATCHED_S", default=30.0)

# --- Celery ---------------------------------------------------------------------------------------

CELERY_BROKER_URL: str = env.str("CELERY_BROKER_URL", default=REDIS_URL)
# Quick to fail: the queue and PostgreSQL hold the truth, and whoever publishes may be a person's
# send. `max_retries` bounds what kombu would try for a hundred seconds.
CELERY_BROKER_TRANSPORT_OPTIONS = (
    {
        "socket_timeout": 5,
        "socket_connect_timeout": 1,
        "socket_keepalive": True,
        "max_retries": 1,
        "interval_start": 0,
        "interval_step": 0.2,
    }
    if CELERY_BROKER_URL.startswith(("redis", "valkey"))
    else {}
)
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None  # for ever: a worker outlives its broker
CELERY_TASK_DEFAULT_QUEUE = "chores"
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = False  # a ticket is a hint; redelivery would only run it twice
CELERY_WORKER_DISABLE_PREFETCH = True  # a ticket waits where any worker can take it
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = True  # none: acks are early
CELERY_WORKER_ENABLE_REMOTE_CONTROL = False  # stops and drains have channels of their own
CELERY_WORKER_SEND_TASK_EVENTS = False
CELERY_WORKER_HIJACK_ROOT_LOGGER = False  # LOGGING holds for workers too
CELERY_WORKER_REDIRECT_STDOUTS = False
CELERY_IMPORTS = ["generation.worker.tasks"]
CELERY_BEAT_SCHEDULE = {
    # `expires`: what a stopped chores worker left behind is not done a hundred times later.
    "sweep": {"task": "generation.sweep", "schedule": 5.0, "options": {"expires": 5}},
    "forget-idempotency-keys": {
        "task": "generation.forget_idempotency_keys",
        "schedule": 3600.0,
        "options": {"expires": 3600},
    },
    "forget-sessions": {
        "task": "accounts.forget_sessions",
        "schedule": 3600.0,
        "options": {"expires": 3600},
    },
    "purge": {"task": "generation.purge", "schedule": 3600.0, "options": {"expires": 3600}},
}
