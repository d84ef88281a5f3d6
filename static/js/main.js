/** Builds the page: finds the shell's elements, makes the models, lets the controllers wire them. */
import { Announcer } from "#js/controllers/announcer.js"
import { App } from "#js/controllers/app.js"
import { Composer } from "#js/controllers/composer.js"
import { Desk } from "#js/controllers/desk.js"
import { Live } from "#js/controllers/live.js"
import { Menu } from "#js/controllers/menu.js"
import { Messages } from "#js/controllers/messages.js"
import { ModelPicker } from "#js/controllers/model_picker.js"
import { Names } from "#js/controllers/names.js"
import { Next } from "#js/controllers/next.js"
import { Release } from "#js/controllers/release.js"
import { registerShellWorker } from "#js/controllers/shell_worker.js"
import { Sheet } from "#js/controllers/sheet.js"
import { Sidebar } from "#js/controllers/sidebar.js"
import { Swipe } from "#js/controllers/swipe.js"
import { Themes } from "#js/controllers/themes.js"
import { Undo } from "#js/controllers/undo.js"
import { Waits } from "#js/controllers/waits.js"
import { Api } from "#js/models/api.js"
import { ConversationList } from "#js/models/conversation_list.js"
import { HintLine } from "#js/models/hint_line.js"
import { t } from "#js/models/i18n.js"
import { ModelChoice } from "#js/models/model_choice.js"
import { NextMessage } from "#js/models/next_message.js"
import { Drafts, forgetOthers, KeySettings, Outbox } from "#js/models/storage.js"
import { Trash } from "#js/models/trash.js"
import { setSprite } from "#js/views/dom.js"
import { NextView } from "#js/views/next_view.js"
import { StripView } from "#js/views/strip_view.js"
import { ThreadView } from "#js/views/thread_view.js"

const { csrf, user, product, sprite, signIn, maxBytes } = document.body.dataset
const byId = (id) => document.getElementById(id)

setSprite(sprite)

forgetOthers({ storages: [storage("localStorage"), storage("sessionStorage")], user })

const api = new Api({ csrf })
const list = new ConversationList({ api })
const drafts = new Drafts({ storage: storage("localStorage"), user })
const outbox = new Outbox({ storage: storage("sessionStorage"), user })
const models = new ModelChoice({ api, storage: storage("localStorage"), user })
const trash = new Trash({ api, list })
const announcer = new Announcer(byId("announcer"))
const menu = new Menu(byId("menu"))
const elements = Object.fromEntries(
  ["empty", "missing", "loading", "earlier", "title", "more", "scroller", "content"].map((id) => [id, byId(id)]),
)

const thread = new ThreadView({ scroller: byId("scroller"), list: byId("thread"), jump: byId("jump"), productName: product })
const composer = new Composer({
  form: byId("composer"),
  field: byId("message"),
  button: byId("action"),
  later: byId("later"),
  size: byId("size"),
  drafts,
  maxBytes: Number(maxBytes),
  onTooLarge: (sizes) => app.refusePaste(sizes),
  onTooLong: () => app.refuseLong(),
  onSize: (words) => announcer.say(words),
  onSend: (text) => app.send(text),
  onNext: (text) => app.sendLater(text),
  onStop: () => app.stop(),
  onChange: () => waits.disarm(),
  onWait: () => announcer.say(t("Something is being fetched. Wait a moment, then send it.")),
})
const sheet = new Sheet({
  toggle: byId("open-sidebar"),
  close: byId("close-sidebar"),
  scrim: byId("scrim"),
  behind: [byId("conversation"), document.querySelector(".skip-link")],
  first: document.querySelector(".new-conversation"),
})
new Swipe({ main: byId("conversation"), sidebar: byId("sidebar"), sheet })
const sidebar = new Sidebar({
  element: byId("sidebar"),
  items: byId("conversations"),
  sheet,
  list,
  onOpen: (id) => app.open(id),
})
const waits = new Waits({
  strip: new StripView(byId("strip")),
  models,
  onVerb: (verb) => app.do(verb),
  onSendNow: ({ byItself }) => {
    composer.send({ focus: !byItself })
    // Its own button is gone; whoever is busy elsewhere stays there.
    if (document.activeElement === document.body) app.toComposer()
  },
})
const next = new Next({
  message: new NextMessage({ storage: storage("localStorage"), tabStorage: storage("sessionStorage"), user }),
  view: new NextView(byId("next")),
  announcer,
  maxBytes: Number(maxBytes),
  onEdit: (text) => {
    composer.giveBack(text)
    composer.focus()
  },
  onTaken: () => app.toComposer(),
})
const app = new App({ api, list, drafts, outbox, models, thread, waits, next, composer, sidebar, announcer, elements, productName: product, signIn, tell: (text) => desk.tell(text) })
const messages = new Messages({
  thread,
  menu,
  models,
  drafts,
  announcer,
  maxBytes: Number(maxBytes),
  conversation: () => app.conversation,
  onTooLarge: (sizes) => app.refusePaste(sizes),
  toComposer: () => app.toComposer(),
})
const undo = new Undo({
  element: byId("undo"),
  text: byId("undo-text"),
  button: byId("undo-button"),
  dismiss: byId("undo-dismiss"),
  trash,
  announcer,
  onClosed: () => (document.body.classList.contains("sheet-open") ? sidebar.focus() : app.toComposer()),
})
const names = new Names({
  list,
  trash,
  menu,
  sidebar,
  undo,
  announcer,
  head: byId("head"),
  title: byId("title"),
  button: byId("more"),
  current: () => app.item,
  onRenamed: (id, title) => app.renamed(id, title),
  onDeleted: (id) => app.deleted(id),
})
const desk = new Desk({
  app,
  list,
  names,
  messages,
  composer,
  sheet,
  announcer,
  keys: new KeySettings({ storage: storage("localStorage") }),
  settings: document.querySelector(".account-name").href,
  newButton: document.querySelector(".new-conversation"),
  searchButton: byId("search"),
  field: byId("message"),
  notice: byId("notice"),
  themes: new Themes({ api, announcer }),
})
const live = new Live({
  line: new HintLine({ url: `${location.origin.replace(/^http/, "ws")}/v1/ws` }),
  list,
  look: () => app.conversation.look(),
  isOpen: (id) => app.conversation.id === id,
  onGone: (id) => app.gone(id),
  onSignedOut: () => app.signedOut(),
  onList: () => app.listChanged(),
})
new ModelPicker({ element: byId("model"), models, menu, announcer })
models.on(() => (byId("standing").textContent = models.standing))

for (const button of document.querySelectorAll("[data-suggestion]")) {
  button.addEventListener("click", () => {
    composer.set(button.dataset.suggestion)
    composer.focus()
  })
}

new Release({
  element: byId("release"),
  reload: byId("reload"),
  dismiss: byId("release-dismiss"),
  announcer,
  toComposer: () => app.toComposer(),
})

app.start({ messages, names, trash, live })
registerShellWorker()

/** Reading `localStorage` throws where a person has switched it off. */
function storage(kind) {
  try {
    return globalThis[kind]
  } catch {
    return null
  }
}
