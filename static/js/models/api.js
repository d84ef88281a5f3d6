/** The product's HTTP API as functions. Same origin, session cookie, CSRF token from the page. */

export class ApiError extends Error {
  constructor({ status, code, message, retryAfterS = null }) {
    super(message)
    this.status = status
    this.code = code
    this.retryAfterS = retryAfterS
  }
}

/** No answer: offline, cut, silent. */
export class NetworkError extends Error {}

/** Reads the one error shape; a proxy's page in its place still gives a usable error. */
export async function errorFrom(response) {
  const body = await response.json().catch(() => null)
  const error = body?.error ?? {}
  return new ApiError({
    status: response.status,
    code: error.code ?? `http_${response.status}`,
    message: error.message ?? "",
    retryAfterS: retryAfter(error.retry_after_s ?? response.headers.get("Retry-After")),
  })
}

function retryAfter(value) {
  const seconds = Number(value)
  return value == null || value === "" || !Number.isFinite(seconds) || seconds < 0 ? null : seconds
}

export class Api {
  constructor({ csrf, fetch = globalThis.fetch.bind(globalThis), base = "/v1" }) {
    this.csrf = csrf
    this.fetch = fetch
    this.base = base
  }

  listConversations({ cursor = null, limit = 30 } = {}) {
    const query = new URLSearchParams({ limit: String(limit) })
    if (cursor) query.set("cursor", cursor)
    return this.#json(`/conversations?${query}`)
  }

  // What opens is a few screens long, so that it is there at once; who goes on up gets more at a time.
  conversation(id, { before = null, limit = before ? 100 : 50 } = {}) {
    const query = new URLSearchParams({ limit: String(limit) })
    if (before) query.set("before", before)
    return this.#json(`/conversations/${encodeURIComponent(id)}?${query}`, { tagged: true })
  }

  rename(id, title) {
    return this.#write("PATCH", `/conversations/${encodeURIComponent(id)}`, { title })
  }

  deleteConversation(id) {
    return this.#write("DELETE", `/conversations/${encodeURIComponent(id)}`)
  }

  restoreConversation(id) {
    return this.#write("POST", `/conversations/${encodeURIComponent(id)}:restore`)
  }

  /** Show the newest leaf below a message. With `etag`, only where nothing has changed since. */
  setActiveLeaf(id, message, { etag = null } = {}) {
    const headers = etag ? { "If-Match": etag } : {}
    return this.#write("PUT", `/conversations/${encodeURIComponent(id)}/active_leaf`, { message }, headers)
  }

  /** @param {{rating: "up"|"down"|null, reason: string}} feedback */
  rate(message, feedback) {
    return this.#write("POST", `/messages/${encodeURIComponent(message)}/feedback`, feedback)
  }

  /** @param {object} changes {theme?, language?, default_model?} */
  setPreferences(changes) {
    return this.#write("PATCH", "/me/preferences", changes)
  }

  models() {
    return this.#json("/models")
  }

  run(run) {
    return this.#json(`/runs/${encodeURIComponent(run)}`)
  }

  /** What has been used, what is left and when it is back. */
  usage() {
    return this.#json("/usage")
  }

  stopRun(run) {
    return this.#json(`/runs/${encodeURIComponent(run)}:stop`, { method: "POST" })
  }

  /**
   * What begins a run. Without `verb` a send; else `verb` is "regenerate" or "continue", of `message`.
   * @returns {Promise<Response>} an event stream when ok
   */
  begin({ conversation, verb = null, message = null, body, key }, signal) {
    const messages = `/conversations/${encodeURIComponent(conversation ?? "new")}/messages`
    const path = verb ? `${messages}/${encodeURIComponent(message)}:${verb}` : messages
    return this.#open(path, {
      method: "POST",
      signal,
      body: JSON.stringify(body),
      headers: { "Content-Type": "application/json", "Idempotency-Key": key },
    })
  }

  /** @returns {Promise<Response>} the events after seq `after`; 204 when there are none and never will be */
  openRun(run, after, signal) {
    const headers = after ? { "Last-Event-ID": `${run}:${after}` } : {}
    return this.#open(`/runs/${encodeURIComponent(run)}/stream`, { signal, headers })
  }

  #open(path, options) {
    const headers = { Accept: "text/event-stream", ...options.headers }
    return this.#request(path, { ...options, headers })
  }

  #write(method, path, body = null, headers = {}) {
    const sent = body === null ? {} : { body: JSON.stringify(body), headers: { "Content-Type": "application/json", ...headers } }
    return this.#json(path, { method, ...sent })
  }

  /** `tagged`: the answer's ETag is added as `etag`. */
  async #json(path, { tagged = false, headers = {}, ...options } = {}) {
    const response = await this.#request(path, { ...options, headers: { Accept: "application/json", ...headers } })
    if (!response.ok) throw await errorFrom(response)
    const found = response.status === 204 ? null : await response.json()
    return tagged ? { ...found, etag: response.headers.get("ETag") } : found
  }

  async #request(path, options) {
    const writes = Boolean(options.method) && options.method !== "GET"
    const headers = { ...options.headers, ...(writes ? { "X-CSRFToken": this.csrf } : {}) }
    try {
      return await this.fetch(this.base + path, {
        ...options,
        headers,
        credentials: "same-origin",
        cache: "no-store",
      })
    } catch (error) {
      throw new NetworkError(error.message, { cause: error })
    }
  }
}
