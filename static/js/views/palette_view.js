/** The command palette as a dialog: a field, and below it the list that its arrow keys walk through. */
import { language, t } from "#js/models/i18n.js"
import { isComposing, shortcut } from "#js/models/shortcuts.js"
import { arrange } from "#js/views/arrange.js"
import { h, icon } from "#js/views/dom.js"
import { closeButton, makeDialog } from "#js/views/dialog.js"
import { keysView } from "#js/views/keys_view.js"

/** Rows are kept and moved, never made anew: a row that is replaced under a finger is not pressed. */
export class PaletteView {
  #groups = new Map() // key → {element, heading}
  #rows = new Map() // option's id → its element

  /** @param {object} hooks {apple, onType(text), onMove(step), onEnd("first"|"last"), onChoose(optionId|null), onClose()} */
  constructor(hooks) {
    Object.assign(this, hooks)
    this.field = h("input", {
      type: "text",
      role: "combobox",
      class: "palette-field",
      dir: "auto",
      "aria-label": t("Search conversations and commands"),
      "aria-expanded": "true",
      "aria-controls": "palette-list",
      "aria-autocomplete": "list",
      placeholder: t("Search or run a command"),
      autocomplete: "off",
      spellcheck: "false",
      enterkeyhint: "go",
      maxlength: "200",
    })
    this.list = h("div", { id: "palette-list", class: "palette-list", role: "listbox", "aria-label": t("Conversations and commands") })
    this.status = h("p", { class: "palette-status", role: "status" })
    this.dialog = this.#makeDialog()
    this.#listen()
  }

  get isOpen() {
    return this.dialog.open
  }

  open() {
    this.field.value = ""
    this.dialog.showModal()
    this.field.focus()
  }

  close() {
    this.dialog.close()
  }

  /** @param {object} palette the model */
  show(palette) {
    arrange(this.list, palette.groups.map((group) => this.#group(group, palette.active)))
    this.#forget()
    if (palette.active) this.field.setAttribute("aria-activedescendant", palette.active)
    else this.field.removeAttribute("aria-activedescendant")
    this.field.ariaExpanded = String(palette.groups.length > 0)
    if (this.status.textContent !== palette.status) this.status.textContent = palette.status
    this.list.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest" })
  }

  #makeDialog() {
    const head = h("div", { class: "palette-head" }, icon("search"), this.field, closeButton(() => this.dialog))
    return makeDialog({ label: t("Search and commands"), className: "palette", onClose: () => this.onClose() }, head, this.list, this.status)
  }

  #listen() {
    this.field.addEventListener("input", () => this.onType(this.field.value))
    this.field.addEventListener("keydown", (event) => this.#key(event))
    // The field keeps the focus: a press in the list chooses, and moves nothing.
    this.list.addEventListener("pointerdown", (event) => event.preventDefault())
    this.list.addEventListener("click", (event) => {
      const option = event.target.closest("[role=option]")
      if (option) this.onChoose(option.id)
    })
  }

  #key(event) {
    if (isComposing(event)) return
    const act = {
      ArrowDown: () => this.onMove(1),
      ArrowUp: () => this.onMove(-1),
      PageDown: () => this.onEnd("last"),
      PageUp: () => this.onEnd("first"),
      Enter: () => this.onChoose(null),
    }[event.key]
    if (!act || event.altKey || event.ctrlKey || event.metaKey) return
    event.preventDefault()
    act()
  }

  #group({ key, title, options }, active) {
    const group = this.#groups.get(key) ?? this.#makeGroup(key, title)
    const rows = options.map((option) => this.#row(option, option.id === active))
    arrange(group.element, group.heading ? [group.heading, ...rows] : rows)
    return group.element
  }

  #makeGroup(key, title) {
    const id = `palette-${key}`
    const heading = title ? h("p", { id, class: "palette-title", role: "presentation" }, title) : null
    const group = { element: h("div", { class: "palette-group", role: "group", "aria-labelledby": title ? id : null }), heading }
    this.#groups.set(key, group)
    return group
  }

  #row(option, selected) {
    const row = this.#rows.get(option.id) ?? this.#makeRow(option)
    row.setAttribute("aria-selected", String(selected))
    const label = row.querySelector(".palette-label")
    if (label.textContent !== option.title) label.textContent = option.title
    const note = row.querySelector(".palette-note")
    if (note) note.textContent = dayOf(option.at)
    return row
  }

  #makeRow(option) {
    const keys = option.command && shortcut(option.command)
    const row = h(
      "div",
      { id: option.id, role: "option", class: "palette-option" },
      icon(option.icon),
      h("span", { class: "palette-label", dir: "auto" }),
      option.at ? h("span", { class: "palette-note" }) : null,
      keys ? keysView(keys, { apple: this.apple, silent: true }) : null,
    )
    this.#rows.set(option.id, row)
    return row
  }

  #forget() {
    for (const [id, row] of this.#rows) if (!row.isConnected) this.#rows.delete(id)
    for (const [key, { element }] of this.#groups) if (!element.isConnected) this.#groups.delete(key)
  }
}

function dayOf(at) {
  return new Intl.DateTimeFormat(language(), { day: "numeric", month: "short" }).format(new Date(at))
}
