/*
 * The service worker of `/sw.js`, which puts VERSION and SHELL {files, first, offline} before this
 * (chatproject/installable.py).
 *
 * It keeps the shell: static files whose names change with their content, and the offline page. It answers
 * nothing else: no page of a person, no call below /v1, no stream ever passes through its cache.
 */
const PREFIX = "shell-"
const CACHE = PREFIX + VERSION
const KEPT = new Set(SHELL.files)

addEventListener("install", (event) => event.waitUntil(install()))
addEventListener("activate", (event) => event.waitUntil(activate()))
addEventListener("fetch", answer)
addEventListener("message", tell)

async function install() {
  const cache = await caches.open(CACHE)
  // "reload": an offline page of an older look may lie in the browser's own cache.
  await cache.addAll([new Request(SHELL.offline, { cache: "reload" }), ...SHELL.first])
  await skipWaiting()
}

async function activate() {
  // The page's request starts while this worker does: it costs no time on a slow phone.
  await registration.navigationPreload?.enable()
  const names = await caches.keys()
  const old = names.filter((name) => name.startsWith(PREFIX) && name !== CACHE)
  await Promise.all(old.map((name) => caches.delete(name)))
  await clients.claim()
}

function answer(event) {
  const { request } = event
  const { origin, pathname, search } = new URL(request.url)
  if (request.method !== "GET" || origin !== location.origin || pathname.startsWith("/v1/")) return
  if (request.mode === "navigate") event.respondWith(page(event))
  else if (KEPT.has(pathname) && !search) event.respondWith(file(request, pathname))
}

/** A page always comes from the network, and is never kept. */
async function page(event) {
  try {
    return (await event.preloadResponse) ?? (await fetch(event.request))
  } catch {
    const cache = await caches.open(CACHE)
    return (await cache.match(SHELL.offline, { ignoreVary: true })) ?? Response.error()
  }
}

async function file(request, pathname) {
  const cache = await caches.open(CACHE)
  const kept = await cache.match(pathname, { ignoreVary: true })
  if (kept) return kept
  const response = await fetch(request)
  // A full disk must not cost the page its styles.
  if (response.ok && response.type === "basic") await cache.put(pathname, response.clone()).catch(() => {})
  return response
}

/**
 * A page that was open before this worker came asks whether its files are those of this release. Without a list
 * (while the site is worked on) they are.
 */
function tell({ data, ports: [port] }) {
  if (port && Array.isArray(data?.files)) port.postMessage(!KEPT.size || data.files.every((file) => KEPT.has(file)))
}
