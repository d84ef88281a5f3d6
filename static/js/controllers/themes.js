/** The look of the page, chosen from the palette: at once here, and for all pages and devices. */
import { t } from "#js/models/i18n.js"
import { Latest } from "#js/models/latest.js"
import { barColours } from "#js/models/look.js"
import { h } from "#js/views/dom.js"

export class Themes {
  constructor({ api, announcer }) {
    this.announcer = announcer
    // Two quick choices must not overtake each other on their way.
    this.saved = new Latest((theme) => api.setPreferences({ theme }))
  }

  /** @param {"system"|"light"|"dark"} theme */
  async choose(theme) {
    document.documentElement.dataset.theme = theme
    colourBar(theme)
    const saved = await this.saved.put(theme)
    if (!saved) this.announcer.say(t("The look could not be saved. It holds until you load the page again."))
  }
}

function colourBar(theme) {
  const [first, ...others] = document.querySelectorAll("meta[name=theme-color]")
  const wanted = barColours(theme).map((bar) => h("meta", { name: "theme-color", ...bar }))
  first.replaceWith(...wanted)
  for (const other of others) other.remove()
}
