/**
 * Draws what comes near the reader before it is seen, and the rest when the page has nothing else to do: a
 * long thread opens as fast as a short one.
 */

// How far outside the scroller something is drawn at once.
const NEAR = "2000px 0px"
// In a quiet moment of less than this nothing more is begun.
const REST_MS = 6

export class DrawSoon {
  #waiting = new Map() // element → what draws it
  #seen
  #idle = null

  /** @param {Element} scroller what the reader scrolls */
  constructor(scroller) {
    this.#seen = new IntersectionObserver((entries) => this.#near(entries), { root: scroller, rootMargin: NEAR })
  }

  add(element, draw) {
    this.#waiting.set(element, draw)
    this.#seen.observe(element)
    this.#idle ??= whenIdle((deadline) => this.#quiet(deadline))
  }

  /** It is drawn, or gone. */
  drop(element) {
    if (this.#waiting.delete(element)) this.#seen.unobserve(element)
  }

  clear() {
    this.#waiting.clear()
    this.#seen.disconnect()
  }

  #near(entries) {
    for (const { isIntersecting, target } of entries) if (isIntersecting) this.#draw(target)
  }

  #draw(element) {
    const draw = this.#waiting.get(element)
    this.drop(element)
    draw?.()
  }

  /** Newest first: the reader comes from the end. */
  #quiet(deadline) {
    const waiting = [...this.#waiting.keys()].reverse()
    do this.#draw(waiting.shift())
    while (waiting.length && deadline.timeRemaining() > REST_MS)
    this.#idle = waiting.length ? whenIdle((next) => this.#quiet(next)) : null
  }
}

/** Safari has no idle callbacks: a moment later, and one at a time. */
function whenIdle(act) {
  if (globalThis.requestIdleCallback) return requestIdleCallback(act)
  return setTimeout(() => act({ timeRemaining: () => 0 }), 50)
}
