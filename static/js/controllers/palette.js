/** Opens the command palette, and does what is chosen in it. */
import { PaletteView } from "#js/views/palette_view.js"

export class PaletteDialog {
  #view = null // made when it is first asked for

  /** @param {object} parts {palette, apple, onConversation(id), onCommand(id)} */
  constructor(parts) {
    Object.assign(this, parts)
    this.palette.on(() => this.#view?.show(this.palette))
  }

  /** The same keys open it and close it. */
  toggle() {
    this.#view ??= this.#makeView()
    if (this.#view.isOpen) return this.#view.close()
    this.#view.open()
    this.palette.open()
  }

  #makeView() {
    const { palette } = this
    return new PaletteView({
      apple: this.apple,
      onType: (text) => palette.type(text),
      onMove: (step) => palette.move(step),
      onEnd: (end) => palette.moveToEnd(end),
      onChoose: (id) => this.#choose(id),
      onClose: () => palette.close(),
    })
  }

  #choose(id) {
    const { options, chosen } = this.palette
    const option = id === null ? chosen : options.find((one) => one.id === id)
    if (!option) return
    if (option.kind === "look") return this.palette.lookOn()
    this.#view.close()
    if (option.kind === "conversation") this.onConversation(option.conversation)
    else this.onCommand(option.command)
  }
}
