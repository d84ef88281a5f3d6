/**
 * A page that stays open over an upgrade still has the modules of the release before, and what it has not loaded
 * yet may be gone from the server. It offers to load itself again, and never does so by itself.
 */
export class Release {
  /** @param {object} parts {element, reload: button, dismiss: button, announcer, toComposer()} */
  constructor(parts) {
    Object.assign(this, parts)
    this.reload.addEventListener("click", () => location.reload())
    this.dismiss.addEventListener("click", () => this.#hide())
    navigator.serviceWorker?.addEventListener("controllerchange", () => this.#consider())
  }

  /** Another look or language has another worker too, but the same files. */
  async #consider() {
    if (!this.element.hidden || (await knowsAll(navigator.serviceWorker.controller, ownFiles()))) return
    this.element.hidden = false
    this.announcer.say(this.element.querySelector("p").textContent)
  }

  #hide() {
    this.element.hidden = true
    this.toComposer()
  }
}

/** The addresses of all modules, as this page has them; the words of its language aside. */
function ownFiles() {
  const { imports } = JSON.parse(document.querySelector("script[type=importmap]").textContent)
  return Object.entries(imports).filter(([name]) => name !== "#js/catalogue").map(([, address]) => address)
}

/** @returns {Promise<boolean>} whether all of `files` belong to the worker's release */
function knowsAll(worker, files) {
  if (!worker) return true
  const { port1, port2 } = new MessageChannel()
  return new Promise((resolve) => {
    port1.onmessage = ({ data }) => resolve(data)
    worker.postMessage({ files }, [port2])
  })
}
