// The search runs in a worker. Browsers refuse to start workers for a page that was opened from
// disk, so there it runs in a hidden frame instead. The theme looks for `IFrameWorker` and then
// expects `importScripts` to return a promise.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const scope = this.frame.contentWindow;
      const load = (source) =>
        new Promise((resolve, reject) => {
          const script = scope.document.createElement("script");
          script.src = source;
          script.onload = resolve;
          script.onerror = () => reject(new Error(`cannot load ${source}`));
          scope.document.head.append(script);
        });
      scope.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      scope.importScripts = async (...sources) => {
        for (const source of sources) await load(source);
      };
      this.loaded = load(new URL(url, document.baseURI).href);
    }

    postMessage(data) {
      this.loaded.then(() => {
        const scope = this.frame.contentWindow;
        scope.dispatchEvent(new scope.MessageEvent("message", { data }));
      });
    }

    terminate() {
      this.frame.remove();
    }
  };
}
