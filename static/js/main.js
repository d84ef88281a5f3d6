/** Builds the page: finds the shell's elements, makes the models, lets the controllers wire them. */
import { Announcer } from "#js/controllers/announcer.js"
import { App } from "#js/controllers/app.js"
import { Composer } from "#js/controllers/composer.js"
import { Sidebar } from "#js/controllers/sidebar.js"
import { Api } from "#js/models/api.js"
import { ConversationList } from "#js/models/conversation_list.js"
import { Drafts, forgetOthers, Outbox } from "#js/models/storage.js"
import { setSprite } from "#js/views/dom.js"
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
const announcer = new Announcer(byId("announcer"))

const thread = new ThreadView({
  scroller: byId("scroller"),
  list: byId("thread"),
  jump: byId("jump"),
  productName: product,
})
const composer = new Composer({
  form: byId("composer"),
  field: byId("message"),
  button: byId("action"),
  drafts,
  maxBytes: Number(maxBytes),
  onTooLarge: (sizes) => app.refusePaste(sizes),
  onSend: (text) => app.send(text),
  onStop: () => app.stop(),
  onWait: () => announcer.say("An answer is being written. Wait for its end, or stop it."),
})
const sidebar = new Sidebar({
  element: byId("sidebar"),
  items: byId("conversations"),
  toggle: byId("open-sidebar"),
  close: byId("close-sidebar"),
  scrim: byId("scrim"),
  main: byId("conversation"),
  list,
  onOpen: (id) => app.open(id),
})
const elements = Object.fromEntries(
  ["empty", "missing", "loading", "earlier", "title", "model"].map((id) => [id, byId(id)]),
)
const strip = new StripView(byId("strip"))
const app = new App({ api, list, drafts, outbox, thread, strip, composer, sidebar, announcer, elements, productName: product, signIn })

for (const button of document.querySelectorAll("[data-suggestion]")) {
  button.addEventListener("click", () => {
    composer.set(button.dataset.suggestion)
    composer.focus()
  })
}

app.start()

/** Reading `localStorage` throws where a person has switched it off. */
function storage(kind) {
  try {
    return globalThis[kind]
  } catch {
    return null
  }
}
