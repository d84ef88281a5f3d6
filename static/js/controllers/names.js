/** Rename and delete, from the list and from above the thread. */
import { renameProblem, titleText } from "#js/models/words.js"
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

  #openHere() {
    const item = this.current()
    if (item) this.menu.open(this.button, this.#items(item, () => this.#renameHere(item)))
  }

  #items(item, rename) {
    return [
      { label: "Rename", icon: "pencil", act: rename },
      { label: "Delete", icon: "bin", act: () => this.#delete(item) },
    ]
  }

  #renameHere(item) {
    this.closeForm()
    const end = (back) => {
      form.element.remove()
      this.head.classList.remove("renaming")
      this.#endHere = null
      if (back) this.button.focus()
    }
    const form = this.#form(item, () => end(true))
    this.#endHere = () => end(false)
    this.head.classList.add("renaming")
    this.title.after(form.element)
    form.focus()
  }

  #renameListed(item) {
    const form = this.#form(item, () => this.sidebar.endRename())
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
      this.announcer.say(`Renamed to ${title}`)
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
