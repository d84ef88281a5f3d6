/** What the page and the frame that draws diagrams say to each other; what the frame answers is not trusted. */
export const DIAGRAM_TEXT_MAX = 20_000
export const DRAWING_PATIENCE_MS = 15_000

const HEIGHT_MIN = 32
const HEIGHT_MAX = 900
const ERROR_MAX = 300

/**
 * @param {object} answer from the frame
 * @param {number} room px: how wide the diagram may be
 * @returns {{width: number, height: number} | {error: string}} px, fit to be used
 */
export function drawingOf(answer, room) {
  const { width, height, error } = answer ?? {}
  if (typeof error === "string") return { error: error.slice(0, ERROR_MAX) }
  if (!(width > 0 && height > 0 && width < 1e6 && height < 1e6)) return { error: "" }
  const scale = Math.min(1, room / width, HEIGHT_MAX / height)
  return { width: Math.ceil(width * scale), height: Math.max(HEIGHT_MIN, Math.ceil(height * scale)) }
}
