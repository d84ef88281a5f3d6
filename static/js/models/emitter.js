/** The one way models speak to controllers: `model.on((change) => …)`. */
export class Emitter {
  #listeners = new Set()

  /** @returns {() => void} stops listening */
  on(listener) {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  emit(kind, detail = {}) {
    for (const listener of [...this.#listeners]) listener({ kind, ...detail })
  }
}
