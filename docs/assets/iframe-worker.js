// Browsers start no worker from a file. For a site that is read from the file system, the search runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.appendChild(frame)
      this.inside = frame.contentWindow
      // In a frame the search finds the names that a worker has: it posts to whoever started it, and imports scripts.
      this.inside.document.open()
      this.inside.document.write(
        "<script>" +
          "postMessage = (data) => parent.postMessage(data, '*');" +
          "importScripts = (...addresses) => addresses.reduce((before, address) => before.then(() => new Promise((done) => {" +
          "const script = document.createElement('script'); script.src = address; script.onload = done;" +
          "document.body.appendChild(script) })), Promise.resolve());" +
          `<\/script><body><script src="${address}"><\/script></body>`,
      )
      this.inside.document.close()
      this.ready = new Promise((done) => (this.inside.onload = done))
      addEventListener("message", (event) => {
        if (event.source !== this.inside) return
        this.dispatchEvent(new MessageEvent("message", { data: event.data }))
      })
    }
    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data: structuredClone(data) })))
    }
  }
}
