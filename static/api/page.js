/* The API's page: Swagger UI over /v1/schema, with the reader's own session. A classic script, as
   Swagger UI's bundle is one. */
"use strict"

const { schema, csrf } = document.body.dataset

/** What the session cookie needs beside it, for our own addresses only. */
function withCsrf(request) {
  if (new URL(request.url, location.href).origin === location.origin) {
    request.headers["X-CSRFToken"] = csrf
  }
  return request
}

const dark = matchMedia("(prefers-color-scheme: dark)")
const follow = () => document.documentElement.classList.toggle("dark-mode", dark.matches)
dark.addEventListener("change", follow)
follow()

SwaggerUIBundle({
  url: schema,
  domNode: document.getElementById("content"),
  deepLinking: true,
  docExpansion: "list",
  defaultModelsExpandDepth: 0,
  tryItOutEnabled: true,
  displayRequestDuration: true,
  validatorUrl: null, // the default asks a foreign host
  persistAuthorization: false,
  withCredentials: true,
  requestInterceptor: withCsrf,
})
