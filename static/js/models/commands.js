/** What the palette can do besides going to a conversation. */
import { t } from "#js/models/i18n.js"

const THEMES = [
  { id: "theme-system", icon: "theme", label: () => t("Theme: like the system"), words: () => t("dark light colours") },
  { id: "theme-light", icon: "theme", label: () => t("Theme: light"), words: () => t("bright colours") },
  { id: "theme-dark", icon: "theme", label: () => t("Theme: dark"), words: () => t("night colours") },
]

const ALWAYS = () => true
const COMMANDS = [
  { id: "new", icon: "plus", label: () => t("New chat"), words: () => t("start conversation"), when: ALWAYS },
  { id: "stop", icon: "stop", label: () => t("Stop the answer"), words: () => t("cancel end"), when: (now) => now.live },
  { id: "copy", icon: "copy", label: () => t("Copy the last answer"), words: () => t("clipboard"), when: (now) => now.answer },
  { id: "rename", icon: "pencil", label: () => t("Rename this conversation"), words: () => t("title name"), when: (now) => now.conversation },
  { id: "delete", icon: "bin", label: () => t("Delete this conversation"), words: () => t("remove"), when: (now) => now.conversation },
  ...THEMES.map((theme) => ({ ...theme, when: ALWAYS })),
  { id: "settings", icon: "settings", label: () => t("Settings and account"), words: () => t("profile password devices tokens"), when: ALWAYS },
  { id: "help", icon: "keyboard", label: () => t("Keyboard shortcuts"), words: () => t("help keys"), when: ALWAYS },
]

/**
 * @param {{conversation: boolean, answer: boolean, live: boolean}} now what there is: an open
 *   conversation, an answer to copy, one that is being written
 * @returns {{id: string, icon: string, title: string, words: string}[]} `words`: found by these too
 */
export function commandsFor(now) {
  return COMMANDS.filter((command) => command.when(now)).map(({ id, icon, label, words }) => ({ id, icon, title: label(), words: words() }))
}
