/** The page's commands: one place that the palette, the shortcuts and the sidebar's buttons act through. */
import { commandsFor } from "#js/models/commands.js"
import { t } from "#js/models/i18n.js"
import { Palette } from "#js/models/palette.js"
import { ariaKeys, isApple, shortcut } from "#js/models/shortcuts.js"
import { PaletteDialog } from "#js/controllers/palette.js"
import { Shortcuts } from "#js/controllers/shortcuts.js"
import { copyText } from "#js/views/dom.js"
import { helpDialog } from "#js/views/help_view.js"
import { keysView } from "#js/views/keys_view.js"

export class Desk {
  #help = null
  #noticeTimer = 0

  /**
   * @param {object} parts {app, list, names, messages, composer, sheet, announcer, keys: KeySettings, settings: address,
   *   newButton, searchButton, field, notice, themes: {choose("system"|"light"|"dark")}}
   */
  constructor(parts) {
    Object.assign(this, parts)
    this.apple = isApple(navigator.userAgentData?.platform || navigator.platform)
    const palette = new Palette({ list: this.list, commands: () => commandsFor(this.#now()) })
    this.palette = new PaletteDialog({
      palette,
      apple: this.apple,
      onConversation: (id) => this.sheet.closeFor(() => this.app.open(id)),
      onCommand: (id) => this.act(id),
    })
    new Shortcuts({ apple: this.apple, composer: this.field, single: () => this.keys.single, act: (id) => this.act(id) })
    this.searchButton.addEventListener("click", () => this.act("palette"))
    this.#showKeys(this.newButton, "new")
    this.#showKeys(this.searchButton, "palette")
  }

  /** @param {string} id of a command or a shortcut @returns {boolean} false where there was nothing to do */
  act(id) {
    const acts = {
      palette: () => this.palette.toggle(),
      help: () => this.#showHelp(),
      new: () => this.sheet.closeFor(() => this.app.open(null)),
      composer: () => this.composer.focus(),
      stop: () => this.#stop(),
      copy: () => this.#copy(),
      edit: () => this.#edit(),
      rename: () => this.sheet.closeFor(() => this.names.renameCurrent()),
      delete: () => this.names.deleteCurrent(),
      settings: () => location.assign(this.settings),
      "theme-system": () => this.themes.choose("system"),
      "theme-light": () => this.themes.choose("light"),
      "theme-dark": () => this.themes.choose("dark"),
    }
    return acts[id]() !== false
  }

  #now() {
    const { conversation, item } = this.app
    return { conversation: item !== null, answer: this.#lastAnswer() !== null, live: this.#canStop(conversation) }
  }

  #canStop({ liveReply, stopping }) {
    return liveReply !== null && !stopping
  }

  #stop() {
    // In a field of its own (a title, an edited message) Escape has been taken; over a menu too.
    return !this.sheet.isOpen && this.app.escape()
  }

  #lastAnswer() {
    return this.app.conversation.messages.findLast(({ role, text }) => role === "assistant" && text) ?? null
  }

  async #copy() {
    const reply = this.#lastAnswer()
    if (!reply) return this.tell(t("There is no answer to copy yet."))
    const copied = await copyText(reply.text)
    this.tell(copied ? t("The last answer is copied.") : t("The answer could not be copied."))
  }

  #edit() {
    const { conversation } = this.app
    const message = conversation.messages.findLast(({ role }) => role === "user")
    if (!message?.id || !conversation.free) return false
    this.messages.edit(message)
    return true
  }

  #showHelp() {
    this.#help ??= helpDialog({ apple: this.apple, single: this.keys.single, onSingle: (on) => (this.keys.single = on) })
    this.#help.showModal()
  }

  /** Said, and shown for a moment where nothing else on the page would show it. */
  tell(text) {
    this.announcer.say(text)
    this.notice.textContent = text
    this.notice.hidden = false
    clearTimeout(this.#noticeTimer)
    this.#noticeTimer = setTimeout(() => (this.notice.hidden = true), noticeMs(text))
  }

  #showKeys(button, id) {
    button.append(keysView(shortcut(id), { apple: this.apple, silent: true }))
    button.setAttribute("aria-keyshortcuts", ariaKeys(shortcut(id), this.apple))
  }
}

/** Long enough to be read. */
function noticeMs(text) {
  return 1_500 + 50 * text.length
}
