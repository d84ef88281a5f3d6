/** Which conversation an address names. */

const PATH = /^\/c\/([^/]+)\/?$/

/** @returns {string|null} the id in `/c/<id>`, or null; one that cannot be decoded stays as it is, and is nobody's */
export function conversationIn(pathname) {
  const name = PATH.exec(pathname)?.[1] ?? null
  try {
    return name && decodeURIComponent(name)
  } catch {
    return name
  }
}
