/** Rename and delete, from the list and from above the thread. */
import { t } from "#js/models/i18n.js"
import { renameProblem, titleText } from "#js/models/words.js"
import { ownsFocus } from "#js/views/dom.js"
import { renameForm } from "#js/views/rename_form.js"

export class Names {
  /** @param {object} parts {list, trash, menu, sidebar, undo, announcer, head, title, button, current() → item|null, onRenamed(id, title), onDeleted(id)} */
  constructor(parts) {
    Object.assign(this, parts)
    this.button.addEventListener("click", () => this.#openHere())
    this.sidebar.onMenu = (item, button) => this.menu.open(button, this.#items(item, () => this.#renameListed(item)))
  }

  /** The title above the thread belongs to another conversation now. */
  closeForm() {
    this.#endHere?.()
  }

  #endHere = null

  /** @returns {boolean} false where no conversation is open */
  renameCurrent() {
    const item = this.current()
    if (item) this.#renameHere(item)
    return item !== null
  }

  /** @returns {boolean} false where no conversation is open */
  deleteCurrent() {
    const item = this.current()
    if (item) this.#delete(item)
    return item !== null
  }

  #openHere() {
    const item = this.current()
    if (item) this.menu.open(this.button, this.#items(item, () => this.#renameHere(item)))
  }

  #items(item, rename) {
    return [
      { label: t("Rename"), icon: "pencil", act: rename },
      { label: t("Delete"), icon: "bin", act: () => this.#delete(item) },
    ]
  }

  #renameHere(item) {
    this.closeForm()
    const end = (back) => {
      if (this.#endHere !== endHere) return // ended already, and perhaps another one is open
      const mayFocus = back && ownsFocus(form.element)
      form.element.remove()
      this.head.classList.remove("renaming")
      this.#endHere = null
      if (mayFocus) this.button.focus()
    }
    const form = this.#form(item, () => end(true))
    const endHere = () => end(false)
    this.#endHere = endHere
    this.head.classList.add("renaming")
    this.title.after(form.element)
    form.focus()
  }

  #renameListed(item) {
    const form = this.#form(item, () => this.sidebar.endRename(form))
    this.sidebar.rename(item.id, form)
  }

  #form(item, end) {
    const onSave = async (title) => {
      const wrong = await this.#save(item.id, title)
      if (wrong === null) end()
      return wrong
    }
    return renameForm({ title: item.title, onSave, onCancel: end })
  }

  /** @returns {Promise<string|null>} what went wrong */
  async #save(id, wanted) {
    try {
      const title = await this.list.rename(id, wanted)
      this.onRenamed(id, title)
      this.announcer.say(t("Renamed to {title}", { title }))
      return null
    } catch (error) {
      const problem = renameProblem(error)
      this.announcer.say(problem)
      return problem
    }
  }

  #delete(item) {
    this.trash.remove({ ...item, title: item.title || "", shown: titleText(item) })
    this.onDeleted(item.id)
    this.undo.focus()
  }
}
