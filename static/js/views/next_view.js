/** The card above the composer: what is sent when the answer has ended. */
import { t } from "#js/models/i18n.js"
import { h, icon, iconButton } from "#js/views/dom.js"

export class NextView {
  #shown = ""

  constructor(element) {
    this.element = element
  }

  /** @param {{text: string, held: boolean}|null} next @param {object} actions {onEdit, onRemove, onSend} */
  show(next, actions) {
    const key = JSON.stringify(next)
    if (key === this.#shown) return
    this.#shown = key
    this.element.hidden = !next
    this.element.classList.toggle("held", Boolean(next?.held))
    this.element.replaceChildren(...(next ? parts(next, actions) : []))
  }
}

function parts({ text, held }, { onEdit, onRemove, onSend }) {
  const why = held ? t("Not sent, since the answer did not end by itself") : t("Next, as soon as the answer has ended")
  return [
    h("p", { class: "next-why" }, icon(held ? "info" : "clock"), h("span", {}, why)),
    h("p", { class: "next-text", dir: "auto" }, text),
    h(
      "div",
      { class: "next-actions" },
      held && h("button", { type: "button", class: "quiet next-send", onclick: onSend }, t("Send it now")),
      iconButton({ name: "pencil", label: t("Edit the next message"), bare: true, onclick: onEdit }),
      iconButton({ name: "close", label: t("Remove the next message"), bare: true, onclick: onRemove }),
    ),
  ]
}
