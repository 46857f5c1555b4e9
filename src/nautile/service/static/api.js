"use strict";
// The API: requests with the token of this tab, and streams of events that survive a lost connection.

const nautile = (() => {
  const KEY = "nautile-token";
  let token = sessionStorage.getItem(KEY) || "";

  class Refused extends Error {
    constructor(problem, status) {
      super(problem.detail || `status ${status}`);
      this.problem = problem;
      this.status = status;
    }
  }

  const headers = (more = {}) => (token ? { Authorization: `Bearer ${token}`, ...more } : more);

  const refusal = async (response) => {
    const problem = await response.json().catch(() => ({}));
    return new Refused(problem, response.status);
  };

  const send = async (method, path, body) => {
    const given = body === undefined ? {} : { "Content-Type": "application/json" };
    const response = await fetch(path, {
      method,
      headers: headers(given),
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    if (!response.ok) throw await refusal(response);
    return response;
  };

  const pause = (seconds) => new Promise((after) => setTimeout(after, seconds * 1000));

  // One event of the stream, from its lines; null for a sign of life.
  const read = (block) => {
    const found = {};
    for (const line of block.split("\n")) {
      const [name, ...rest] = line.split(": ");
      if (name) found[name] = rest.join(": ");
    }
    return found.event ? { id: found.id, kind: found.event, data: JSON.parse(found.data) } : null;
  };

  // Tell `each` of every event of a job, until its end or until `signal` is aborted.
  const follow = async (path, each, signal) => {
    let last = "0";
    for (let failures = 0; !signal.aborted; ) {
      try {
        const response = await fetch(path, { headers: headers({ "Last-Event-ID": last }), signal });
        if (response.status === 204) return;
        if (!response.ok) throw await refusal(response);
        failures = 0;
        const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
        let text = "";
        for (;;) {
          const { value, done } = await reader.read();
          if (done) break;
          text += value;
          const blocks = text.split("\n\n");
          text = blocks.pop();
          for (const event of blocks.map(read).filter(Boolean)) {
            last = event.id;
            if (each(event)) return;
          }
        }
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof Refused && error.status < 500 && error.status !== 429) throw error;
        failures += 1;
        if (failures > 8) throw error;
      }
      await pause(Math.min(10, 0.5 * 2 ** failures));
    }
  };

  return {
    Refused,
    follow,
    pause,
    get: async (path) => (await send("GET", path)).json(),
    text: async (path) => (await send("GET", path)).text(),
    post: async (path, body) => (await send("POST", path, body)).json(),
    remove: async (path) => (await send("DELETE", path)).json(),
    get token() {
      return token;
    },
    set token(text) {
      token = text;
      if (text) sessionStorage.setItem(KEY, text);
      else sessionStorage.removeItem(KEY);
    },
  };
})();
