// Search in a site opened from disk: browsers allow no workers there, so the script runs in a hidden frame.
// (The name is how Material's offline plugin knows that it need not fetch one.)
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const home = new URL(url, location)
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.appendChild(frame)
      const inside = frame.contentWindow
      const load = (source) => new Promise((done, failed) => {
        const script = inside.document.createElement("script")
        script.onload = done
        script.onerror = failed
        script.src = new URL(source, home)
        inside.document.body.appendChild(script)
      })
      inside.importScripts = (...sources) => sources.reduce((before, source) => before.then(() => load(source)), Promise.resolve())
      inside.postMessage = (data) => {
        const event = new MessageEvent("message", { data })
        this.dispatchEvent(event)
        if (this.onmessage) this.onmessage(event)
      }
      this.frame = frame
      this.ready = load(home)
    }

    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })))
    }

    terminate() {
      this.frame.remove()
    }
  }
}
