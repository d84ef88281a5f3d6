/** Registers the service worker that keeps the shell (docs/ui.md). The page works as well without it. */

const ADDRESS = "/sw.js"

/** Once the page has all it needs: on a slow line the worker's own files must not come first. */
export function registerShellWorker() {
  if (document.readyState === "complete") register()
  else addEventListener("load", register, { once: true })
}

async function register() {
  try {
    await navigator.serviceWorker.register(trusted(ADDRESS), { scope: "/", updateViaCache: "none" })
  } catch {
    // Private windows, switched off, or no TLS: nothing that the reader must know.
  }
}

/** Trusted Types hold for worker scripts too: this policy lets through the one address, whoever asks. */
function trusted(address) {
  const { trustedTypes } = globalThis
  if (!trustedTypes) return address
  const policy = trustedTypes.createPolicy("shell-worker", {
    createScriptURL(url) {
      if (url !== ADDRESS) throw new TypeError(`not the shell's worker: ${url}`)
      return url
    },
  })
  return policy.createScriptURL(address)
}
