/**
 * Code cut into chunks of lines. A chunk that is whole never changes, so drawing and colouring code that grows
 * costs by its last chunk, not by its length.
 */
export const CHUNK_LINES = 32
const CHUNK_CHARS = 16_000
// A string or a comment that runs over more chunks than this is coloured as if it ended.
const JOINED_MAX = 5

/**
 * Where the chunk that begins at `from` ends: the index of the line end that separates it from the next one, or
 * -1 while it may still grow. A chunk does not end with an empty line, which would not be seen.
 */
export function chunkEnd(text, from) {
  let lines = 0
  for (let at = text.indexOf("\n", from); at >= 0; at = text.indexOf("\n", at + 1)) {
    lines += 1
    const full = lines >= CHUNK_LINES || at - from >= CHUNK_CHARS
    const tooLong = lines >= CHUNK_LINES * 4
    if ((full && at > from && text[at - 1] !== "\n") || tooLong) return at
  }
  return -1
}

/** The first of the chunks that must be read to colour chunk `index`. @param {boolean[]} open of those before */
export function firstToRead(open, index) {
  let first = index
  while (first > 0 && index - first < JOINED_MAX && open[first - 1]) first -= 1
  return first
}

/** The pieces without their first `skipped` characters. */
export function piecesAfter(pieces, skipped) {
  const left = []
  let at = 0
  for (const [kind, text] of pieces) {
    if (at + text.length > skipped) left.push([kind, at >= skipped ? text : text.slice(skipped - at)])
    at += text.length
  }
  return left
}
