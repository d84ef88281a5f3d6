/**
 * A diagram in a frame that can do nothing: `sandbox` gives it an origin of its own, so it reaches neither this
 * page nor the person's session, and its page's policy forbids the network. It gets the text, and says how large
 * the drawing is, or what is wrong with the text.
 */
import { DRAWING_PATIENCE_MS, drawingOf } from "#js/models/drawing.js"
import { t } from "#js/models/i18n.js"
import { h } from "#js/views/dom.js"

const TOKENS = { paper: "--paper-sunken", raised: "--paper-raised", tint: "--tint", ink: "--ink", grey: "--grey", edge: "--edge-strong", ember: "--ember" }

export class Drawing {
  #channel = new MessageChannel()
  #timer = 0
  #sent = false
  #theme = null
  #listening = new AbortController()

  /** @param {object} hooks {onDrawn(), onFailed(words)}; after a failure it is to be closed */
  constructor(code, { onDrawn, onFailed }) {
    Object.assign(this, { code, onDrawn, onFailed })
    this.frame = h("iframe", {
      class: "diagram",
      title: t("Diagram"),
      sandbox: "allow-scripts",
      referrerpolicy: "no-referrer",
      src: "/diagram",
      height: "64",
    })
    this.#channel.port1.onmessage = ({ data }) => this.#answered(data)
    addEventListener("message", (event) => this.#ready(event), { signal: this.#listening.signal })
    this.#timer = setTimeout(() => this.onFailed(t("The diagram took too long to draw. Its text is above.")), DRAWING_PATIENCE_MS)
    this.#watchTheme()
    code.element.append(this.frame)
  }

  close() {
    clearTimeout(this.#timer)
    this.#listening.abort()
    this.#theme.disconnect()
    this.#channel.port1.close()
    this.frame.remove()
  }

  /** The person's choice, or the system's. */
  #watchTheme() {
    const change = () => this.#sent && this.#channel.port1.postMessage(colours())
    this.#theme = new MutationObserver(change)
    this.#theme.observe(document.documentElement, { attributeFilter: ["data-theme"] })
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", change, { signal: this.#listening.signal })
  }

  #ready({ source, data }) {
    if (this.#sent || source !== this.frame.contentWindow || data !== "ready") return
    this.#sent = true
    // An opaque origin has no name to send to; the frame's policy is what holds its content.
    source.postMessage({ text: this.code.text, ...colours() }, "*", [this.#channel.port2])
  }

  #answered(answer) {
    clearTimeout(this.#timer)
    // As much room on the sides as above; the sides' own margins are `auto`, and take what is left.
    const room = this.code.element.clientWidth - 2 * parseFloat(getComputedStyle(this.frame).marginBlockStart)
    const drawing = drawingOf(answer, room)
    if ("error" in drawing) return this.onFailed(t("The diagram could not be drawn. Its text is above. {reason}", { reason: drawing.error }))
    this.frame.width = drawing.width
    this.frame.height = drawing.height
    this.frame.classList.add("drawn")
    this.onDrawn()
  }
}

/** The page's, as they are now. */
function colours() {
  const probe = h("span", { hidden: true })
  document.body.append(probe)
  const found = Object.fromEntries(Object.entries(TOKENS).map(([name, token]) => [name, rgb(probe, token)]))
  probe.remove()
  return { colours: found, dark: isDark(found.paper) }
}

/** A colour in the words that Mermaid's colour library knows; as it is now, for a token has a light face and a dark one. */
function rgb(probe, token) {
  probe.style.color = `var(${token})`
  const context = h("canvas", { width: "1", height: "1" }).getContext("2d")
  context.fillStyle = getComputedStyle(probe).color
  context.fillRect(0, 0, 1, 1)
  const [red, green, blue] = context.getImageData(0, 0, 1, 1).data
  return `rgb(${red}, ${green}, ${blue})`
}

function isDark(colour) {
  const [red, green, blue] = colour.match(/\d+/g).map(Number)
  return red + green + blue < 384
}
