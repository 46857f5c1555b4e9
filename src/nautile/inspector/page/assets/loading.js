"use strict";
// Scripts that are loaded when they are needed, from the page's own folder and from nowhere else:
// the one place that makes trusted addresses.
{
  const { el, get } = nautile;
  const OWN = /^assets\/(?:[A-Za-z0-9_][A-Za-z0-9_.-]*\/)*[A-Za-z0-9_][A-Za-z0-9_.-]*\.(?:js|css)$/;
  const workers = new Set();
  const rules = {
    createScriptURL(address) {
      if (OWN.test(address) || workers.has(address)) return address;
      throw new TypeError(`not an asset of this page: ${address}`);
    },
  };
  const policy = window.trustedTypes?.createPolicy("nautile", rules) ?? rules;
  const started = new Map();

  function element(path) {
    if (path.endsWith(".css")) {
      const link = el("link", { rel: "stylesheet" });
      if (!OWN.test(path)) throw new TypeError(`not an asset of this page: ${path}`);
      link.href = path;
      return link;
    }
    const script = el("script");
    script.src = policy.createScriptURL(path);
    script.async = false;
    return script;
  }

  // Settles when the asset has run; each is loaded once.
  function load(path) {
    if (!started.has(path)) {
      started.set(path, new Promise((done, failed) => {
        const node = element(path);
        node.addEventListener("load", () => done());
        node.addEventListener("error", () => failed(new Error(`${path} is missing`)));
        document.head.append(node);
      }));
    }
    return started.get(path);
  }

  // The data called `name`, from its file.
  async function data(name) {
    const known = get(name);
    if (known !== undefined) return known;
    await load(`assets/data/${name}.js`);
    return get(name);
  }

  // A worker that runs `text`: scripts of other files cannot be workers of a page opened from disk.
  function worker(text) {
    const address = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
    workers.add(address);
    const made = new Worker(policy.createScriptURL(address));
    workers.delete(address);
    URL.revokeObjectURL(address);
    return made;
  }

  nautile.assets = { load, data, worker };
}
