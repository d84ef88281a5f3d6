/** Says start, end and errors once to assistive technology; never the text of an answer piece by piece. */
export class Announcer {
  #timer = 0

  constructor(element) {
    this.element = element
  }

  say(text) {
    // Emptied first: a region that gets the same words again would stay silent.
    this.element.textContent = ""
    clearTimeout(this.#timer)
    this.#timer = setTimeout(() => (this.element.textContent = text), 60)
  }
}
