// The site's search runs in a worker, and browsers start none for a page that is opened from a folder. There a frame
// runs the worker's script: what either side posts is an event on the other one.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super()
      this.inside = new Promise(ready => {
        const frame = document.createElement("iframe")
        frame.hidden = true
        document.documentElement.append(frame)
        const inside = frame.contentWindow
        inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", {data}))
        const script = inside.document.createElement("script")
        script.src = new URL(address, location.href)
        script.onload = () => ready(inside)
        inside.document.documentElement.append(script)
      })
    }

    postMessage(data) {
      this.inside.then(inside => inside.dispatchEvent(new inside.MessageEvent("message", {data})))
    }
  }
}
